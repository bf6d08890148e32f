-- In front of every script. A script is atomic but does not roll back: everything that can be refused is checked before
-- the first write, and the first write is the one that can still fail (no memory, read-only), leaving nothing behind.

local CHUNK = 1000 -- pairs in one command: Lua's stack holds some 8,000 values

-- A reply when a key holds another type than wanted, else nil.
local function wrong_type(key, wanted)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= wanted then return {'TYPE', key, found} end
end

-- What a value of ours says that is to be a whole number; nil for none, and for one that was damaged: nobody may be kept
-- from writing what stands there anew.
local function whole(text)
  local number = text and string.match(text, '^%d+$') and tonumber(text)
  return number and number < 2 ^ 63 and number or nil
end

-- A reply when somebody else, or nobody, owns the partition, else nil. Tokens are compared as a whole.
local function fenced(owner, token)
  local holder = redis.call('GET', owner) or ''
  if holder ~= token then return {'FENCED', holder} end
end

-- Whether the entry `id` may be written behind `before`: nil when so, else a reply. An entry that is there already was
-- written by an earlier try of the same call, since ids of an epoch are its owner's alone.
local function misplaced(head, before, id)
  local last = redis.call('GET', head) or '0-0'
  if last == id then return {'OK', 'again'} end
  if last ~= before then return {'LOST', 'log', last} end
end

-- A reply when the journal does not take the entry, else nil. One that ends behind it was written to by somebody else: a
-- new epoch begins behind that.
local function append(log, head, id, minid, entry, retain_ms)
  local written = redis.pcall('XADD', log, 'MINID', '~', minid, id, 'e', entry)
  if type(written) == 'table' and written.err then
    if string.find(written.err, 'equal or smaller', 1, true) then return {'LOST', 'log', 'another entry'} end
    return written
  end
  redis.call('SET', head, id, 'PX', retain_ms)
  redis.call('PEXPIRE', log, retain_ms)
end

-- Applies the changes of a map segment, {field, value, field, value, …} to set and {field, …} to take out; returns how
-- many fields it gained and lost.
local function change(key, changes, is_new, retain_ms)
  local sets, outs, gained, lost = changes[1], changes[2], 0, 0
  for first = 1, #sets, 2 * CHUNK do
    gained = gained + redis.call('HSET', key, unpack(sets, first, math.min(first + 2 * CHUNK - 1, #sets)))
  end
  for first = 1, #outs, CHUNK do
    lost = lost + redis.call('HDEL', key, unpack(outs, first, math.min(first + CHUNK - 1, #outs)))
  end
  if is_new then redis.call('PEXPIRE', key, retain_ms) end
  return gained, lost
end

-- A generation that no life of this source had: more than is stored, more than the caller knows, and at least the time,
-- so that it grows also where the store was emptied or restored. Microseconds stay exact in a double until 2255.
local function next_generation(stored, known)
  local now = redis.call('TIME')
  local generation = math.max((whole(stored) or 0) + 1, tonumber(known) + 1, now[1] * 1000000 + now[2])
  return string.format('%.0f', generation)
end
