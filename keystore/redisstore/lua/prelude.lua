-- prelude.lua stands before every script of this folder.
--
-- KEYS[1]  what the call is about (an operation, a lease, an index); echoed
-- KEYS[2]  meta of the scope
-- ARGV[1]  milliseconds added to the clock: always 0 outside of tests
-- ARGV[2]  the field of the calling instance's own count of writes, i:<instance>
--
-- returns  {code, KEYS[1], now, n, i, wrote, ack, bad, gen, ...}
--   code   what came of it, one word
--   now    the server's clock, ms
--   n, i   writes in this scope, of everybody and of this instance
--   wrote  1 where this run wrote, else 0
--   ack    how often an operator acknowledged a rollback
--   bad    why the ledger is not to be trusted, or ''
--   gen    the generation that KEYS[2] belongs to, or ''
--
-- Everything is checked first and written last, and the first write is one that
-- a full or read-only server refuses: so a script writes all or nothing. Numbers
-- that may pass 2^53 stay text and are never compared by strings' order, which
-- in Redis depends on the server's locale.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]
local meta = redis.call('HMGET', KEYS[2], 'n', ARGV[2], 'ack', 'bad', 'gen')
local n, i = tonumber(meta[1] or 0), tonumber(meta[2] or 0)
local bad, gen = meta[4] or '', meta[5] or ''

local function text(number)
  return string.format('%.0f', number)
end

-- instant is now plus a duration in ms, or 0 for none.
local function instant(duration)
  duration = tonumber(duration)
  if duration > 0 then return text(now + duration) end
  return '0'
end

-- count says in meta that this run wrote; it is the last write of each script.
local function count()
  n, i = n + 1, i + 1
  redis.call('HSET', KEYS[2], 'n', text(n), ARGV[2], text(i))
end

local function answer(code, wrote, ...)
  return {code, KEYS[1], now, n, i, wrote, tonumber(meta[3] or 0), bad, gen, ...}
end

-- record answers with the operation as it is stored: its columns, then rec, then
-- the body where it was read. stored is what an earlier read of it gave.
local function record(code, wrote, stored)
  stored = stored or redis.call('HMGET', KEYS[1], 'version', 'writer', 'state', 'updated', 'deadline', 'expires', 'rec')
  return answer(code, wrote, unpack(stored))
end

-- whole reads an operation with its body in one go.
local function whole()
  return redis.call('HMGET', KEYS[1], 'version', 'writer', 'state', 'updated', 'deadline', 'expires', 'rec', 'body')
end

-- less compares two numbers of 20 digits.
local function less(a, b)
  local ah, bh = tonumber(string.sub(a, 1, 10)), tonumber(string.sub(b, 1, 10))
  if ah ~= bh then return ah < bh end
  return tonumber(string.sub(a, 11)) < tonumber(string.sub(b, 11))
end
