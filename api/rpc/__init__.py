"""The gRPC face: `kvindexer.v1.KvIndexer`, llm-d's `indexer.v1.IndexerService`, health and reflection.

    server.py      sockets up and down, what is registered, what one connection may do
    listening.py   where it listens
    arrivals.py    a call's message;  calls.py  who calls, and what is shared among callers
    lookups.py     the three ways to ask;  questions.py  bytes → question;  answers.py  answer → bytes
    sources.py     the list of sources;  watching.py  their changes
    pod_scores.py  the other project's interface
    statuses.py    errors → gRPC statuses;  gone.py  callers that do not wait for them

Only this package and the generated modules know gRPC.
"""
