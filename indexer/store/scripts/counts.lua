-- Put what was counted of sources beside their state: best effort, no journal entry, and again without harm.
-- KEYS owner; then the state of each source
-- ARGV token; then for each source its generation and its counts
-- OK place... | FENCED holder | TYPE key found. A source whose state is not there, of another kind or of another generation
-- is left out, and its place told, from 0: it was removed or registered anew meanwhile, or its next generation began.
local owner, token = KEYS[1], ARGV[1]

local reply = wrong_type(owner, 'string') or fenced(owner, token)
if reply then return reply end
local left_out = {}
for nth = 2, #KEYS do
  local state, generation = KEYS[nth], ARGV[2 * nth - 2]
  if not wrong_type(state, 'hash') and redis.call('HGET', state, 'generation') == generation then
    redis.call('HSET', state, 'counts', ARGV[2 * nth - 1])
  else
    left_out[#left_out + 1] = nth - 2
  end
end
return {'OK', unpack(left_out)}
