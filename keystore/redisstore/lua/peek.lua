-- peek.lua reads an operation without its body, for lists.
--
-- KEYS[1]  the operation; KEYS[2] meta
--
-- returns  found + record, or none
local r = record('found', 0)
if not r[10] then return answer('none', 0) end
return r
