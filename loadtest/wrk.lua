-- Sends prepared requests in turns. Arguments: file, path, content type, how many to pass over at the start.
-- The file holds bodies, each after its length as little-endian u32.

local requests, count, turn = {}, 0, 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  local headers = { ["Content-Type"] = args[3] }
  while true do
    local head = file:read(4)
    if not head then break end
    local a, b, c, d = head:byte(1, 4)
    local body = file:read(a + b * 256 + c * 65536 + d * 16777216)
    count = count + 1
    requests[count] = wrk.format("POST", args[2], headers, body)
  end
  file:close()
  turn = args[4] % count
end

function request()
  turn = turn % count + 1
  return requests[turn]
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"requests": %d, "seconds": %.6f, "p50_us": %.1f, "p99_us": %.1f, "errors": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
