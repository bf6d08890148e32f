"""[I/O] Looks from here: each is bounded in time and bytes, changes nothing anywhere, and gives facts.

All but the store's are for threads, and end early once `stop` is set.
"""
