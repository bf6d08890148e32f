"""[I/O] What a replica does with partitions of the store: own them, or follow them.

Following, in the order of what happens:

    followers           which partitions are followed: reads registries, maps, journals and commands
    followed_partition  one of them: entries, commands and readings in their order
    followed_sources    its sources, as the registry and commands say
    followed            one source: what the journal tells of it, and when it may answer
    reading             its map being read beside what answers
    shelves             where sources stand in this process
    options             how followers behave, and what is told of them
"""
