"""[I/O] Facts that outlive a process."""
