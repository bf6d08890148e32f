"""What routing by prefix wins: traces over pods with LRU caches and queues, `python -m loadtest simulate`.

Nothing is served and no socket opened: a trace says who asked what and when, a model of an engine says what it costs.

    segments             prompts as paths through a tree of runs of blocks, so that 85 million blocks take seconds
    caches               what a pod holds: LRU by block, kept by run
    workload, sessions   requests by time, faster or slower than they were; who goes on what, where nobody says
    traces, logs         the public traces, recorded engines' questions, a gateway's own log
    fleet                pods that compute prompts one after another, and what a router may know of them
    strategies           who gets a request: the blend of recommendations, and what it is measured against
    figures              hits, imbalance and times to the first token of one replay
    cells                the targets: every trace, size of fleet and size of cache
    sweep, command       weights tried out over somebody's own log, and the command line
    run                  the scenario, as saved in `loadtest/results`
"""
