-- The owner begins a generation of a source: its engine restarted or said that it is empty, or a command raised the
-- generation and nothing is held of it yet. O(1).
-- KEYS owner, head, log, state of the source
-- ARGV token, id of the entry written last, id of this one, id below which the journal may forget, entry, retain ms,
--      generation, number of segments of its first copy
-- OK generation copy segments: of what was before, '' where there was nothing; the caller unlinks it | OK again
-- FENCED holder | LOST log last | GENERATION g 1: that one is begun, or a later one stands | TYPE key found
local owner, head, log, state = unpack(KEYS)
local token, before, id, minid, entry, retain_ms, generation, segments = unpack(ARGV)

local reply = wrong_type(owner, 'string') or wrong_type(head, 'string') or wrong_type(log, 'stream')
  or wrong_type(state, 'hash') or fenced(owner, token) or misplaced(head, before, id)
if reply then return reply end
local was = redis.call('HMGET', state, 'generation', 'copy', 'segments', 'complete')
local stored = whole(was[1]) or 0
if stored > tonumber(generation) or (was[1] == generation and was[4]) then return {'GENERATION', was[1], 1} end

reply = append(log, head, id, minid, entry, retain_ms)
if reply then return reply end
redis.call('HDEL', state, 'cursor', 'facts')
redis.call('HSET', state, 'generation', generation, 'copy', 0, 'segments', segments, 'pairs', 0, 'gone', 0, 'complete', 1)
redis.call('PEXPIRE', state, retain_ms)
return {'OK', was[1] or '', was[2] or '', was[3] or ''}
