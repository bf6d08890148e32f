"""[I/O] Facts that outlive a process: maps of sources, a journal of changes, and who owns what, in Redis or Valkey.

In the order of a write, pure parts marked so:

    layout       every key (pure)                     address      where the store is (pure)
    segments     fields and values of maps (pure)     client       the only module that knows the Redis library
    entries      journal entries, positions (pure)    breaker      when to let a failing store be (pure)
    packing      arguments for Lua (pure)             failures     what goes wrong (pure)
    scripts/     one atomic step a file               fitness      whether a store serves (pure)
    lua          scripts as values                    deployment   what replicas agree on
    outcomes     what scripts reply (pure)
    lease        look at, take, renew, give up, hand over a partition
    members      tell of this replica, hear of all
    commands     register, clear, remove; the control stream
    journal      an owner's writes                    budget       how much of the journal is kept (pure)
    rebuild      load a partition                     loading, following: what the reader decides (pure)

Everything here knows Redis and nothing of the stories: it is told what to write, and tells what it read.
"""
