-- lease.lua reads the fencing state of a run.
--
-- KEYS[1]  the lease; KEYS[2] meta
--
-- returns  found + lease (owner, token, acquired, expires, version, writer), or none
local l = redis.call('HMGET', KEYS[1], 'owner', 'token', 'acquired', 'expires', 'version', 'writer')
if not l[5] then return answer('none', 0) end
return answer('found', 0, unpack(l))
