-- Give a partition up. What comes back after a time-out when it was done already is FENCED ''.
-- KEYS owner
-- ARGV token
-- OK | FENCED holder ('' for none) | TYPE key found
local wrong = wrong_type(KEYS[1], 'string') or fenced(KEYS[1], ARGV[1])
if wrong then return wrong end
redis.call('UNLINK', KEYS[1])
return {'OK'}
