-- Mark a process of a replica: it is to give up what it owns. Or lift the mark. Absolute, so again does no harm.
-- KEYS replicas
-- ARGV name, process ('' lifts the mark), retain ms
-- OK | TYPE key found
local replicas = KEYS[1]
local name, process, retain_ms = unpack(ARGV)

local wrong = wrong_type(replicas, 'hash')
if wrong then return wrong end
if process == '' then
  redis.call('HDEL', replicas, 'd:' .. name)
else
  redis.call('HSET', replicas, 'd:' .. name, process)
  redis.call('PEXPIRE', replicas, retain_ms)
end
return {'OK'}
