-- write.lua stands between the prelude and insert.lua or swap.lua.
--
-- KEYS[1]   the operation: a hash
-- KEYS[2]   meta of the scope
-- KEYS[3]   index by state: a sorted set of keys, score = state * 2^44 + updated
-- KEYS[4]   index by expiry: a sorted set of keys, score = expires
-- KEYS[5]   the lease of the guard; KEYS[2] again where there is none
-- ARGV[3]   'go', or the generation without which nothing must be written, nor
--           where meta says bad
-- ARGV[4]   'wait' where the caller waits for replicas after this script
-- ARGV[5]   the version this write replaces; ARGV[6] the version it makes
-- ARGV[7]   writer
-- ARGV[8]   state
-- ARGV[9]   deadline and ARGV[10] expiry, in ms from now, 0 for none
-- ARGV[11]  the operation's key, as it stands in the indexes
-- ARGV[12]  the record
-- ARGV[13]  'keep', 'drop' or 'set' the body; ARGV[14] the body
-- ARGV[15]  guard: 'none', 'own' (a live lease with this token) or 'external'
--           (the highest token seen); ARGV[16] token, 20 digits
-- refuses says that this may lead to a send and the ledger went back in time.
local function refuses()
  return ARGV[3] ~= 'go' and (bad ~= '' or gen ~= ARGV[3])
end

local held -- the lease as stored, where the guard is external

-- holds checks the guard and writes nothing.
local function holds()
  if ARGV[15] == 'none' then return true end
  local l = redis.call('HMGET', KEYS[5], 'token', 'owner', 'expires', 'version')
  if ARGV[15] == 'own' then
    local expires = tonumber(l[3] or 0)
    return l[1] == ARGV[16] and l[2] ~= '' and not (expires ~= 0 and now >= expires)
  end
  held = l
  return not l[1] or not less(ARGV[16], l[1])
end

-- put writes record, body, indexes, the raised token and the counters.
local function put()
  local expires = instant(ARGV[10])
  redis.call('ZADD', KEYS[3], text(ARGV[8] * 17592186044416 + now), ARGV[11])
  if expires ~= '0' then
    redis.call('ZADD', KEYS[4], expires, ARGV[11])
  elseif ARGV[6] ~= '1' then
    redis.call('ZREM', KEYS[4], ARGV[11])
  end
  if ARGV[13] == 'set' then
    redis.call('HSET', KEYS[1], 'version', ARGV[6], 'writer', ARGV[7], 'state', ARGV[8], 'updated', text(now),
      'deadline', instant(ARGV[9]), 'expires', expires, 'rec', ARGV[12], 'body', ARGV[14])
  else
    redis.call('HSET', KEYS[1], 'version', ARGV[6], 'writer', ARGV[7], 'state', ARGV[8], 'updated', text(now),
      'deadline', instant(ARGV[9]), 'expires', expires, 'rec', ARGV[12])
    if ARGV[13] == 'drop' then redis.call('HDEL', KEYS[1], 'body') end
  end
  if held and (not held[1] or less(held[1], ARGV[16])) then
    redis.call('HSET', KEYS[5], 'owner', 'external', 'token', ARGV[16], 'acquired', text(now), 'expires', '0',
      'version', text((held[4] or 0) + 1), 'writer', '')
  end
  count()
end

-- again answers a write that recognises itself. WAIT waits for what its own
-- connection wrote, so where it follows there must be something to wait for.
local function again()
  if ARGV[4] == 'wait' then redis.call('HINCRBY', KEYS[2], 'again', 1) end
  return record('written', 0)
end
