-- swap.lua writes the next version of an operation.
-- KEYS and ARGV as in write.lua.
--
-- returns  written             this run wrote it: the caller knows the rest
--          written + record    an earlier run of the same writer wrote it
--          conflict + record   another version is there
--          none                no operation is there
--          lost + record       the version fits and the guard does not hold
--          bad                 refused: see ARGV[3]
if refuses() then return answer('bad', 0) end
local cur = redis.call('HMGET', KEYS[1], 'version', 'writer')
if not cur[1] then return answer('none', 0) end
if cur[1] == ARGV[6] and cur[2] == ARGV[7] then return again() end
if cur[1] ~= ARGV[5] then return record('conflict', 0) end
if not holds() then return record('lost', 0) end
put()
return answer('written', 1)
