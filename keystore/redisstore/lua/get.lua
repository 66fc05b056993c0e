-- get.lua reads an operation. It has no shebang, so a full server runs it too.
--
-- KEYS[1]  the operation; KEYS[2] meta
--
-- returns  found + record + body, or none
local cur = whole()
if not cur[1] then return answer('none', 0) end
return record('found', 0, cur)
