-- Write a merged run of batches: one journal entry, and what it means for each source. Without sources it is a tick.
-- KEYS owner, head, log; then for each source: its state, and the segments that change
-- ARGV token, id of the entry written last, id of this one, id below which the journal may forget, entry, retain ms;
--      MessagePack: for each source {generation, copy, cursor before, cursor after ('' for none), facts, changes of each
--      segment}, numbers as text, since Lua's have 53 bits
-- OK | OK again: it was in
-- FENCED holder | LOST log last: the journal does not end where this owner left it | LOST source nth: no state, or a
-- copy that is not whole | GENERATION g nth | CURSOR stored nth | TYPE key found
local owner, head, log = KEYS[1], KEYS[2], KEYS[3]
local token, before, id, minid, entry, retain_ms = unpack(ARGV, 1, 6)

local wrong = wrong_type(owner, 'string') or wrong_type(head, 'string') or wrong_type(log, 'stream')
  or fenced(owner, token)
if wrong then return wrong end

local sources, key = {}, 4
for nth, told in ipairs(cmsgpack.unpack(ARGV[7])) do
  local source = {state = KEYS[key], generation = told[1], copy = told[2], from = told[3], to = told[4], facts = told[5],
    segments = {}}
  wrong = wrong_type(source.state, 'hash')
  if wrong then return wrong end
  for number, changes in ipairs(told[6]) do
    local segment = KEYS[key + number]
    local found = redis.call('TYPE', segment).ok
    if found ~= 'none' and found ~= 'hash' then return {'TYPE', segment, found} end
    source.segments[number] = {key = segment, changes = changes, is_new = found == 'none'}
  end
  sources[nth] = source
  key = key + 1 + #told[6]
end

local reply = misplaced(head, before, id)
if reply then return reply end

for nth, source in ipairs(sources) do
  local is = redis.call('HMGET', source.state, 'generation', 'copy', 'cursor', 'complete', 'pairs', 'gone')
  if not whole(is[1]) then return {'LOST', 'source', nth} end
  if is[1] ~= source.generation then return {'GENERATION', is[1], nth} end
  if is[4] ~= '1' or is[2] ~= source.copy then return {'LOST', 'source', nth} end
  if (is[3] or '') ~= source.from then return {'CURSOR', is[3] or '', nth} end
  source.pairs, source.gone = tonumber(is[5]), tonumber(is[6])
  if not (source.pairs and source.gone) then return {'LOST', 'source', nth} end
end

reply = append(log, head, id, minid, entry, retain_ms)
if reply then return reply end
for _, source in ipairs(sources) do
  for _, segment in ipairs(source.segments) do
    local gained, lost = change(segment.key, segment.changes, segment.is_new, retain_ms)
    source.pairs, source.gone = source.pairs + gained - lost, source.gone + lost
  end
  local fields = {'pairs', source.pairs, 'gone', source.gone}
  if source.to ~= '' then
    fields[5], fields[6] = 'cursor', source.to
  end
  if source.facts ~= '' then
    fields[#fields + 1], fields[#fields + 2] = 'facts', source.facts
  end
  redis.call('HSET', source.state, unpack(fields))
  redis.call('PEXPIRE', source.state, retain_ms)
end
return {'OK'}
