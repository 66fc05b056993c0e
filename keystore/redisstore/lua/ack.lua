-- ack.lua takes the word of flag.lua back and lets every process forget what it
-- remembers of the scope.
--
-- KEYS[1], KEYS[2]  meta
-- ARGV[3]  the count of acknowledgements to reach at least
--
-- returns  written
local ack = math.max(tonumber(meta[3] or 0) + 1, tonumber(ARGV[3]))
redis.call('HSET', KEYS[2], 'ack', text(ack))
redis.call('HDEL', KEYS[2], 'bad')
meta[3], bad = ack, ''
return answer('written', 0)
