"""One interface; the folder below is its version."""
