"""How far answers can be trusted while parts fail: recorded engines, a real service, faults, and the engines' truth.

`caches` says what an engine held after each of its messages, `judging` what an answer is worth beside it, `unsaid`
what nobody could know, `streams` what becomes of messages on the way; these do no I/O. `recordings`, `asking`,
`serving` and `playing` run it; `losses`, `restarts`, `replicas`, `silences` and `lies` are the faults, `reported` has
real reuse told back; `run` makes a result of them.
"""
