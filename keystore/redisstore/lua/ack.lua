-- ack.lua takes the word of flag.lua back, gives the scope or the ledger its new
-- generation and lets every process forget what it remembers.
--
-- KEYS[1], KEYS[2]  meta
-- ARGV[3]  the count of acknowledgements to reach at least
-- ARGV[4]  the new generation, which propose.lua gave
-- ARGV[5]  'scope', or 'ledger' and then the scopes that have it, as s:<scope>
--
-- returns  written
local ack = math.max(tonumber(meta[3] or 0) + 1, tonumber(ARGV[3]))
if ARGV[5] == 'scope' then
  gen = ARGV[4]
elseif redis.call('HGET', KEYS[2], 'next') == ARGV[4] then
  gen = ARGV[4] -- else somebody who acknowledged at the same time was first
end
redis.call('HSET', KEYS[2], 'ack', text(ack), 'gen', gen)
for k = 6, #ARGV do
  redis.call('HSET', KEYS[2], ARGV[k], '1')
end
redis.call('HDEL', KEYS[2], 'bad')
if gen == ARGV[4] and ARGV[5] == 'ledger' then redis.call('HDEL', KEYS[2], 'next') end
meta[3], bad = ack, ''
return answer('written', 0)
