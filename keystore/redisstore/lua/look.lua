-- look.lua reads nothing but what every answer carries: is the ledger still the
-- one this process knows?
--
-- KEYS[1], KEYS[2]  meta
--
-- returns  found
return answer('found', 0)
