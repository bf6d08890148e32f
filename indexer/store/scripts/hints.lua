-- Hints of one replica for sources of one partition. Any replica may write them: nothing counts because of one, and one
-- that is written twice says the same. Bounded in entries.
-- KEYS the partition's stream of hints
-- ARGV the writer, entries to keep, retain ms, the hints
local found = wrong_type(KEYS[1], 'stream')
if found then return found end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'w', ARGV[1], 'h', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'OK'}
