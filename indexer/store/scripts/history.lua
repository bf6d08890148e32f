-- Entries of histories of sources of one partition, each behind what its stream has. Any replica may write them: they say
-- who saw what. Bounded in entries, and renewed for so long.
-- KEYS a stream for each entry
-- ARGV the writer, entries to keep, retain ms; then for each entry: its number, the entry
-- A writer's numbers only grow, so an entry whose number is not greater than its writer's last one in that stream was
-- written by an earlier try of the same call. Looked for among the latest 16: a call that is sent again comes soon.
-- OK then the places of the keys that hold something else: nothing is written there
local writer, keep, retain_ms = ARGV[1], ARGV[2], ARGV[3]
local lasts, others = {}, {}

-- false where the key holds something else
local function last_number(stream)
  local found = redis.call('TYPE', stream).ok
  if found ~= 'none' and found ~= 'stream' then return false end
  for _, entry in ipairs(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 16)) do
    local fields = {}
    for place = 1, #entry[2], 2 do fields[entry[2][place]] = entry[2][place + 1] end
    if fields.w == writer then return whole(fields.n) or 0 end
  end
  return 0
end

for place, stream in ipairs(KEYS) do
  local number, entry = ARGV[2 + 2 * place], ARGV[3 + 2 * place]
  if lasts[stream] == nil then lasts[stream] = last_number(stream) end
  if not lasts[stream] then
    others[#others + 1] = place
  elseif tonumber(number) > lasts[stream] then
    redis.call('XADD', stream, 'MAXLEN', '~', keep, '*', 'w', writer, 'n', number, 'e', entry)
    redis.call('PEXPIRE', stream, retain_ms)
    lasts[stream] = tonumber(number)
  end
end
return {'OK', unpack(others)}
