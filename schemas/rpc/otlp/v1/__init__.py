"""`otlp.v1`: the proto, and what is generated from it."""
