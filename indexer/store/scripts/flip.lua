-- Point a source at a new copy that is laid out whole. Where the state was lost it is made anew; where an earlier
-- generation stands, as after a restore, it ends.
-- KEYS owner, head, log, state of the source, all segments of the new copy
-- ARGV token, id of the entry written last, id of this one, id below which the journal may forget, entry, retain ms,
--      generation, copy, cursor ('' for none), facts, pairs that the copy must hold
-- OK generation copy segments: of what was before, '' where there was nothing; the caller unlinks it | OK again
-- FENCED holder | LOST log last | LOST copy pairs: it holds another number of pairs | GENERATION g 1: a later one stands | TYPE key found
local owner, head, log, state = unpack(KEYS, 1, 4)
local token, before, id, minid, entry, retain_ms, generation, copy, cursor, facts, pairs_wanted = unpack(ARGV)

local reply = wrong_type(owner, 'string') or wrong_type(head, 'string') or wrong_type(log, 'stream')
  or wrong_type(state, 'hash')
if reply then return reply end
for nth = 5, #KEYS do
  reply = wrong_type(KEYS[nth], 'hash')
  if reply then return reply end
end
reply = fenced(owner, token) or misplaced(head, before, id)
if reply then return reply end
local was = redis.call('HMGET', state, 'generation', 'copy', 'segments')
if (whole(was[1]) or 0) > tonumber(generation) then return {'GENERATION', was[1], 1} end
local found = 0
for nth = 5, #KEYS do found = found + redis.call('HLEN', KEYS[nth]) end
if found ~= tonumber(pairs_wanted) then return {'LOST', 'copy', found} end

reply = append(log, head, id, minid, entry, retain_ms)
if reply then return reply end
redis.call('HDEL', state, 'cursor')
redis.call('HSET', state, 'generation', generation, 'copy', copy, 'segments', #KEYS - 4, 'pairs', found, 'gone', 0,
  'complete', 1, 'facts', facts)
if cursor ~= '' then redis.call('HSET', state, 'cursor', cursor) end
redis.call('PEXPIRE', state, retain_ms)
for nth = 5, #KEYS do redis.call('PEXPIRE', KEYS[nth], retain_ms) end
return {'OK', was[1] or '', was[2] or '', was[3] or ''}
