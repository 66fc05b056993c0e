-- propose.lua names the generation that an acknowledgement will give, one for all
-- who acknowledge at the same time.
--
-- KEYS[1], KEYS[2]  meta of the ledger as a whole
-- ARGV[3]  a fresh one
--
-- returns  found + the one to use
local next = redis.call('HGET', KEYS[2], 'next')
if not next then
  next = ARGV[3]
  redis.call('HSET', KEYS[2], 'next', next)
end
return answer('found', 0, next)
