-- insert.lua writes the first version of an operation, or shows the one there is.
-- KEYS and ARGV as in write.lua.
--
-- returns  written                 this run wrote it: the caller knows the rest
--          written + record        an earlier run of the same writer wrote it
--          exists + record + body  the body only of a completed operation
--          lost                    the guard does not hold and nothing is there
--          bad                     refused: see ARGV[3]
if refuses() then return answer('bad', 0) end
local cur = whole()
if cur[1] then
  if cur[1] == ARGV[6] and cur[2] == ARGV[7] then return again() end
  if cur[3] ~= '4' then cur[8] = false end
  return record('exists', 0, cur)
end
if not holds() then return answer('lost', 0) end
put()
return answer('written', 1)
