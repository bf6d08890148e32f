-- How a partition stands. Reads only.
-- KEYS owner, epoch
-- OK holder ms last: who owns it, or whom it is kept for ('' for nobody), for so long, and the token given last ('' for none)
-- TYPE key found
local owner, epoch = unpack(KEYS)

local wrong = wrong_type(owner, 'string') or wrong_type(epoch, 'string')
if wrong then return wrong end
return {'OK', redis.call('GET', owner) or '', redis.call('PTTL', owner), redis.call('GET', epoch) or ''}
