"""The service without its faces: collect, decode, hashing, index, score, sharding, store."""
