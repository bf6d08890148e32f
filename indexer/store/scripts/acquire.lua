-- Take a partition that nobody owns, or that is kept for the caller; or, when the caller owns it, anew in a new epoch.
-- KEYS epoch, owner, head, log
-- ARGV replica, nonce (new for each attempt, the same when the attempt is sent again), token held now or '',
--      highest epoch known, lease ms, retain ms
-- OK token after: owned; the journal's entry <epoch>-1 is written and names `after`, the entry it continues
-- HELD holder ms: somebody else's, for so long unless renewed, or kept for somebody else (`to:<replica>`)
-- TYPE key found
local epoch, owner, head, log = unpack(KEYS)
local replica, nonce, held, known, lease_ms, retain_ms = unpack(ARGV)

local wrong = wrong_type(epoch, 'string') or wrong_type(owner, 'string') or wrong_type(head, 'string')
  or wrong_type(log, 'stream')
if wrong then return wrong end

local after = redis.call('GET', head) or '0-0'
local ended = whole(string.match(after, '^(%d+)%-%d+$'))
if not ended then after, ended = '0-0', 0 end -- damaged: what stood before is not known
local holder = redis.call('GET', owner)
local mine = ':' .. replica .. ':' .. nonce
if holder and string.sub(holder, -#mine) == mine then
  return {'OK', holder, after, 'again'}
end
if holder and holder ~= 'to:' .. replica and (held == '' or holder ~= held) then
  return {'HELD', holder, redis.call('PTTL', owner)}
end

-- Time is part of it: after a restore from an old snapshot the number that was given since must not be given again,
-- for a follower would take the new owner's entries for those it waits for.
local newest = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1] -- not ours, perhaps, and ids only grow
local last = math.max(whole(string.match(redis.call('GET', epoch) or '', '^(%d+):')) or 0, ended,
  newest and whole(string.match(newest[1], '^%d+')) or 0)
local now = redis.call('TIME')
local number = math.max(last + 1, tonumber(known) + 1, now[1] * 1000 + math.floor(now[2] / 1000))
local name = string.format('%.0f', number)
local token, id = name .. mine, name .. '-1'

local written = redis.pcall('XADD', log, id, 'a', after)
if type(written) == 'table' and written.err then
  if string.find(written.err, 'equal or smaller', 1, true) then return {'TYPE', log, 'stream that ends in the future'} end
  return written
end
redis.call('SET', epoch, token)
redis.call('SET', owner, token, 'PX', lease_ms)
redis.call('SET', head, id, 'PX', retain_ms)
redis.call('PEXPIRE', log, retain_ms)
return {'OK', token, after}
