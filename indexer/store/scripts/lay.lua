-- Write a part of a new copy, which nobody reads before `flip` points at it. Absolute, so again does no harm.
-- KEYS owner, state of the source, segment
-- ARGV token, generation, number of the copy, retain ms, changes as MessagePack
-- OK pairs: in the segment now | FENCED holder | GENERATION g 1: a later one stands | LOST source 1: that copy is in use | TYPE key found
local owner, state, segment = unpack(KEYS)
local token, generation, copy, retain_ms, changes = unpack(ARGV)

local reply = wrong_type(owner, 'string') or wrong_type(state, 'hash') or wrong_type(segment, 'hash')
  or fenced(owner, token)
if reply then return reply end
local is = redis.call('HMGET', state, 'generation', 'copy')
if (whole(is[1]) or 0) > tonumber(generation) then return {'GENERATION', is[1], 1} end
if is[1] == generation and is[2] == copy then return {'LOST', 'source', 1} end

change(segment, cmsgpack.unpack(changes), true, retain_ms)
return {'OK', redis.call('HLEN', segment)}
