-- Renew the time to live of a source's keys, and see that none of them is gone.
-- KEYS owner, state of the source, all segments of its copy
-- ARGV token, generation, copy, retain ms
-- OK | FENCED holder | GENERATION g 1 | LOST source 1: no state, another copy, or fewer pairs than it should have
-- TYPE key found
local owner, state = KEYS[1], KEYS[2]
local token, generation, copy, retain_ms = unpack(ARGV)

local reply = wrong_type(owner, 'string') or wrong_type(state, 'hash')
if reply then return reply end
for nth = 3, #KEYS do
  reply = wrong_type(KEYS[nth], 'hash')
  if reply then return reply end
end
reply = fenced(owner, token)
if reply then return reply end
local is = redis.call('HMGET', state, 'generation', 'copy', 'pairs', 'segments')
if whole(is[1]) and is[1] ~= generation then return {'GENERATION', is[1], 1} end
local found = 0
for nth = 3, #KEYS do found = found + redis.call('HLEN', KEYS[nth]) end
if not whole(is[1]) or is[2] ~= copy or found ~= tonumber(is[3]) or #KEYS - 2 ~= tonumber(is[4]) then return {'LOST', 'source', 1} end

for nth = 2, #KEYS do redis.call('PEXPIRE', KEYS[nth], retain_ms) end
return {'OK'}
