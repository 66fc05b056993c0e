-- flag.lua says in a scope that the ledger went back in time. The first word stays.
--
-- KEYS[1], KEYS[2]  meta
-- ARGV[3]  why, for an operator
-- ARGV[4]  the count of acknowledgements that the finder knew: a later
--          acknowledgement is not undone by an earlier find
--
-- returns  found, or written where it is now said
if tonumber(meta[3] or 0) > tonumber(ARGV[4]) or bad ~= '' then return answer('found', 0) end
redis.call('HSET', KEYS[2], 'bad', ARGV[3])
bad = ARGV[3]
return answer('written', 0)
