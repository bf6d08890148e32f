"""External processing; the folder below is its version."""
