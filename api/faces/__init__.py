"""Other services' lookup APIs, spoken so that a router needs no more than another URL.

Two protocols share their paths: that of Dynamo 1.6's standalone indexer and that of Mooncake's conductor (RFC #1403).
A third, production-stack's picker, has `/lookup` and `GET /query` for itself. Bodies are taken as the originals'
clients send them, keys that nobody here knows are passed over, and errors have the originals' status and form.
decisions/0026 lists where the answers differ, and why.
"""
