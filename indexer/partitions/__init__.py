"""[I/O] What a replica does with partitions of the store: own them, or follow them.

    replica             which partitions this process owns and follows, and how that goes
    parts               what all of these have in common
    commanding          a command, given
    overview            how this replica does, and what it knows of others
    views               what operators see of partitions and replicas (pure)
    draining            a replica gives up what it owns, at an operator's word
    removals            what commands removed lately
    watch               whether the store serves
    histories           what happened to sources, written behind and read
    orders              commands given here: checked, made durable, awaited
    control             commands of all replicas about owned partitions, as the control streams tell them

Who owns what, in the order of what happens:

    membership          this replica's beats, what others tell in theirs, and the plan
    sharing             what follows: listening along, handing over, leaving
    standby             whose engines are listened to
    moves               which partition is handed over next (pure)
    acquiring           taking one when it is this replica's turn (sharding/rights.py)

Owning, in the order of what happens:

    owner               one partition, from one epoch to the next
    holding             its lease, renewed in time
    opening             all sources of a partition, as they were left
    configuring         the registry, as flags and the configuration say
    owned               one source: where its map stands, and what is not written yet (pure)
    writing             one epoch: runs, ticks, leases
    calls               calls to the journal, one after the other, each known to be done or not
    refusals            what follows when the store refuses one
    asserting, laying   whole new copies of maps
    put_back            registrations that the store lost
    news                the operator's log of all this

Following, in the order of what happens:

    followers           which partitions are followed: reads registries, maps, journals and commands
    followed_partition  one of them: entries, commands and readings in their order
    followed_sources    its sources, as the registry and commands say
    passed_over         those whose model is not followed here
    followed            one source: what the journal tells of it, and when it may answer
    reading             its map being read beside what answers
    shelves, on_roster  where sources stand in this process
    options             how followers behave, and what is told of them
"""
