-- Give a partition up, or hand it over: then it is kept for one replica, which alone may take it meanwhile.
-- KEYS owner
-- ARGV token, replica it is kept for ('' for none), ms for which it is kept
-- OK | OK again: kept for that replica already | FENCED holder ('' for none; also when it was given up already)
-- TYPE key found
local owner = KEYS[1]
local token, heir, keep_ms = unpack(ARGV)

local wrong = wrong_type(owner, 'string')
if wrong then return wrong end
local kept = 'to:' .. heir -- no token: those begin with a number
if heir ~= '' and redis.call('GET', owner) == kept then return {'OK', 'again'} end
local refused = fenced(owner, token)
if refused then return refused end
if heir == '' then
  redis.call('UNLINK', owner)
else
  redis.call('SET', owner, kept, 'PX', keep_ms)
end
return {'OK'}
