"""REST: JSON, MessagePack and plain token bytes over HTTP. `hot` answers lookups, `app` everything else."""
