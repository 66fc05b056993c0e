-- list.lua reads one stretch of an index, oldest first.
--
-- KEYS[1]  the index; KEYS[2] meta
-- ARGV[3]  lowest score; ARGV[4] highest, as ZRANGEBYSCORE takes them, or 'now'
-- ARGV[5]  how many to skip; ARGV[6] how many to return
--
-- returns  found + key, score, key, score, ...
local high = ARGV[4]
if high == 'now' then high = text(now) end
local r = answer('found', 0)
for _, v in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[3], high, 'WITHSCORES', 'LIMIT', ARGV[5], ARGV[6])) do
  r[#r + 1] = v
end
return r
