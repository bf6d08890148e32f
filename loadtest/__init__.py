"""Load tests: what makes the numbers in the README. `python -m loadtest NAME`, see `__main__`.

Every figure is a ratio against something measured in the same run on the same core (a null route, the decoder alone, a
bare socket hop, an idle loop), printed with its conditions; absolute figures stand beside it and are never asserted.
The service runs on one core, whatever loads it on another. Only loopback is loaded, and everything is bounded in time.

    content, wire, traffic    what engines hold and say, and what they are asked (pure, seeded)
    processes, machine        children pinned to cores and asked through a pipe; the conditions of a run
    publisher, service        the two ends: engines' PUB sockets, and the real node behind real HTTP
    filling                   from one to the other without a backlog
    generator                 wrk, or a client of our own, with a file of prepared requests
    lookups, ingest, stall, memory, soak, bench    the scenarios
    trust, simulate           answers while parts fail; what routing by prefix wins: each with modules of its own
    report, readme            results as JSON, the tables made of them, RESULTS.md and the README's choice
"""
