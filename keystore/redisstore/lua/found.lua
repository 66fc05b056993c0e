-- found.lua gives a scope its generation: one that is new to the ledger, or one
-- that an acknowledgement did not reach, since nobody had it in a list.
--
-- KEYS[1], KEYS[2]  meta
-- ARGV[3]  the generation
-- ARGV[4]  the one before the acknowledgement, or '' for a new scope
-- ARGV[5]  the count of acknowledgements of the ledger
--
-- returns  found: the caller compares what gen says now
if ARGV[4] ~= '' and (gen == '' or gen == ARGV[4]) then
  gen, bad, meta[3] = ARGV[3], '', ARGV[5]
  redis.call('HSET', KEYS[2], 'gen', gen, 'ack', ARGV[5])
  redis.call('HDEL', KEYS[2], 'bad')
elseif gen == '' and bad == '' and n == 0 and not meta[3] then
  gen = ARGV[3]
  redis.call('HSET', KEYS[2], 'gen', gen)
end
return answer('found', 0)
