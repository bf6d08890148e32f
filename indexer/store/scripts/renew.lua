-- Keep a partition for another lease.
-- KEYS owner
-- ARGV token, lease ms
-- OK | FENCED holder ('' for none) | TYPE key found
local wrong = wrong_type(KEYS[1], 'string') or fenced(KEYS[1], ARGV[1])
if wrong then return wrong end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'OK'}
