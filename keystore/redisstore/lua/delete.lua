-- delete.lua forgets an operation at exactly one version. Its first write frees
-- memory, so a full server runs it.
--
-- KEYS[1]  the operation; KEYS[2] meta; KEYS[3] index by state; KEYS[4] by expiry
-- ARGV[3]  the version; ARGV[4] the operation's key, as it stands in the indexes
--
-- returns  written + record    it is gone, and this was it
--          conflict + record   another version is there
--          none                no operation is there
local version = redis.call('HGET', KEYS[1], 'version')
if not version then return answer('none', 0) end
if version ~= ARGV[3] then return record('conflict', 0) end
local r = record('written', 1)
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], ARGV[4])
redis.call('ZREM', KEYS[4], ARGV[4])
count()
r[4], r[5] = n, i
return r
