-- A command about a source, which any replica may give: changes registry and state, and tells all on the control stream.
-- KEYS registry, state of the source, control stream
-- ARGV verb, source, descriptor, highest generation known, nonce (the same when sent again), retain ms, entries to keep,
-- '=' and the descriptor that must stand ('=' alone: none) or '' for whatever stands, '1' where it counts as a clear
-- Verbs: put     make or change the registration: a new generation, and nothing where an equal one stands
--        edit    change a descriptor and nothing else (cordon, drain)
--        restore back into a registry that was lost, where it is missing; the generation is its owner's to assert. Where a
--                later one than that stands, it was not lost but removed
--        clear   a new generation, of the same engine: cursor and facts stay, for who owns it next goes on behind that
--        remove  out of the registry; a new generation refuses what is still on its way
--        doubt   nothing in the store: its owner is told. Of another generation than the highest known one: no effect
-- OK generation entry was copy segments: the generation now, the id in the control stream, and where the map of before
-- is, '' for nowhere; the caller unlinks it unless the generation is the same | OK generation entry again |
-- SAME generation | OTHER descriptor: that one stands ('' none) | UNKNOWN | TYPE key found
local registry, state, control = unpack(KEYS)
local verb, source, descriptor, known, nonce, retain_ms, keep, expected, counts = unpack(ARGV)

local wrong = wrong_type(registry, 'hash') or wrong_type(state, 'hash') or wrong_type(control, 'stream')
if wrong then return wrong end
local was = redis.call('HMGET', state, 'generation', 'copy', 'segments', 'command')
local given, told = string.match(was[4] or '', '^(%S+) ?(%S*)$')
if given == nonce then return {'OK', was[1], told, 'again'} end
if not whole(was[1]) then was = {} end
local stands = redis.call('HGET', registry, source)
if not stands and verb ~= 'put' and verb ~= 'restore' then return {'UNKNOWN'} end
local is_later = was[1] and tonumber(was[1]) > tonumber(known)
if verb == 'restore' and (stands or is_later) or stands == descriptor and (verb == 'put' or verb == 'edit') then
  return {'SAME', was[1] or '0'}
end
if verb == 'doubt' and was[1] ~= known then return {'SAME', was[1] or '0'} end
if expected ~= '' and expected ~= '=' .. (stands or '') then return {'OTHER', stands or ''} end
local raises = verb == 'put' or verb == 'clear' or verb == 'remove'
local generation = was[1] or '0'
if raises then generation = next_generation(was[1], known) end

local fields = {'v', verb, 's', source, 'g', generation, 'd', descriptor}
if counts == '1' then fields[9], fields[10] = 'c', nonce end
local entry = redis.call('XADD', control, 'MAXLEN', '~', keep, '*', unpack(fields))
redis.call('PEXPIRE', control, retain_ms)
if verb == 'remove' then
  redis.call('HDEL', registry, source)
elseif verb ~= 'clear' and verb ~= 'doubt' then
  redis.call('HSET', registry, source, descriptor)
end
if raises then
  redis.call('HDEL', state, 'copy', 'segments', 'pairs', 'gone', 'complete')
  if verb ~= 'clear' then redis.call('HDEL', state, 'cursor', 'facts', 'counts') end
  redis.call('HSET', state, 'generation', generation)
end
if raises or was[1] then
  redis.call('HSET', state, 'command', nonce .. ' ' .. entry)
  redis.call('PEXPIRE', state, retain_ms)
end
return {'OK', generation, entry, was[1] or '', was[2] or '', was[3] or ''}
