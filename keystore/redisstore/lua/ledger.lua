-- ledger.lua asks the ledger as a whole which generation it is, and whether it has
-- a scope; it begins an empty ledger.
--
-- KEYS[1], KEYS[2]  meta of the ledger as a whole
-- ARGV[3]  the generation to begin an empty ledger with, or '' where it is known
--          that it cannot be empty
-- ARGV[4]  the scope, as s:<scope>, or ''
-- ARGV[5]  'ask', or the generation in which the scope has its meta, so that from
--          now on the ledger has it
--
-- returns  found + '1' where the ledger has the scope, else ''
if gen == '' and ARGV[3] ~= '' and bad == '' and not meta[3] then
  gen = ARGV[3]
  redis.call('HSET', KEYS[2], 'gen', gen)
end
local has = ''
if ARGV[4] ~= '' then
  has = redis.call('HGET', KEYS[2], ARGV[4]) or ''
  if has == '' and ARGV[5] ~= 'ask' and ARGV[5] == gen then
    has = '1'
    redis.call('HSET', KEYS[2], ARGV[4], has)
  end
end
return answer('found', 0, has)
