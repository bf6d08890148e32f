-- Tell of a replica, and hear of all.
-- KEYS replicas
-- ARGV name, what it says, retain ms, ms of silence after which a replica is forgotten
-- OK {field, age ms, value, …}: of each replica, `b:<name>` and what it said; of each drain mark, `d:<name>`, 0 and the
-- process it names. An age of -1: a beat that was damaged, and is taken out, since whoever lives beats again
-- TYPE key found
local replicas = KEYS[1]
local name, says, retain_ms, forget_ms = unpack(ARGV)

local wrong = wrong_type(replicas, 'hash')
if wrong then return wrong end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = string.format('%.0f|', now)
redis.call('HSET', replicas, 'b:' .. name, stamp .. says)
redis.call('PEXPIRE', replicas, retain_ms)

local fields, found, beats, marks = redis.call('HGETALL', replicas), {}, {}, {}
local function tell(field, age, value)
  found[#found + 1], found[#found + 2], found[#found + 3] = field, age, value
end
for nth = 1, #fields, 2 do
  local field, value = fields[nth], fields[nth + 1]
  local kind, whose = string.sub(field, 1, 2), string.sub(field, 3)
  if kind == 'd:' then
    marks[whose] = value
  elseif kind == 'b:' then
    local bar = string.find(value, '|', 1, true)
    local at, said = bar and whole(string.sub(value, 1, bar - 1)), bar and string.sub(value, bar + 1)
    if at and at > now then -- by a clock that was set back since, or another server's: its age begins now
      at = now
      redis.call('HSET', replicas, field, stamp .. said)
    end
    if at and now - at <= tonumber(forget_ms) then
      beats[whose] = true
      tell(field, now - at, said)
    else
      redis.call('HDEL', replicas, field)
      if not at then tell(field, -1, '') end
    end
  end
end
for whose, process in pairs(marks) do
  if beats[whose] then tell('d:' .. whose, 0, process) else redis.call('HDEL', replicas, 'd:' .. whose) end
end
return {'OK', found}
