"""[pure] How much a deployment takes, from measured constants: what `kvindexer plan` says.

measured.json   the constants, each with where it was measured; written from loadtest/results, never by hand
measured        reads them
formulas        what is wanted → memory, store, CPU, replicas, files, settings
"""
