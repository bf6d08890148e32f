-- Loads of the engines of one partition, as the replica that reads their metrics tells them: those told last, whole. Any
-- replica may write them: nothing counts because of one but who is recommended.
-- KEYS the partition's loads
-- ARGV ttl ms, the loads
local found = wrong_type(KEYS[1], 'hash')
if found then return found end
redis.call('HSET', KEYS[1], 'l', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {'OK'}
