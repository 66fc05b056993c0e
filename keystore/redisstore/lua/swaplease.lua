-- swaplease.lua writes the next version of a lease; version 1 inserts it.
--
-- KEYS[1]  the lease: a hash; KEYS[2] meta
-- ARGV[3]  the version this write replaces, '0' for none; ARGV[4] the version it makes
-- ARGV[5]  writer; ARGV[6] owner; ARGV[7] token, 20 digits
-- ARGV[8]  acquired, or 'now'; ARGV[9] ms from now to its expiry
-- ARGV[10] 'live' where the stored lease must not have expired
--
-- returns  written + lease, conflict + lease, or lost + lease (see ARGV[10])
local function lease(code, wrote)
  local l = redis.call('HMGET', KEYS[1], 'owner', 'token', 'acquired', 'expires', 'version', 'writer')
  if not l[5] then return answer(code, wrote) end
  return answer(code, wrote, unpack(l))
end
local cur = redis.call('HMGET', KEYS[1], 'version', 'writer', 'owner', 'expires')
if cur[1] == ARGV[4] and cur[2] == ARGV[5] then return lease('written', 0) end
if (cur[1] or '0') ~= ARGV[3] then return lease('conflict', 0) end
if ARGV[10] == 'live' then
  local expires = tonumber(cur[4] or 0)
  if not cur[3] or cur[3] == '' or (expires ~= 0 and now >= expires) then return lease('lost', 0) end
end
local acquired = ARGV[8]
if acquired == 'now' then acquired = text(now) end
redis.call('HSET', KEYS[1], 'owner', ARGV[6], 'token', ARGV[7], 'acquired', acquired,
  'expires', text(now + ARGV[9]), 'version', ARGV[4], 'writer', ARGV[5])
count()
return lease('written', 1)
