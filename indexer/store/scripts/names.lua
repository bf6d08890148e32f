-- What the engines of one partition say they serve, as the replica that asks them tells it: the last word, whole. Any
-- replica may write it: it says by which names sources are asked for, and nothing of what they hold.
-- KEYS the partition's names
-- ARGV ttl ms, the names
local found = wrong_type(KEYS[1], 'hash')
if found then return found end
redis.call('HSET', KEYS[1], 'n', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return {'OK'}
