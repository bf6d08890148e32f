"""[pure] Bytes in, events out, one bad event at a time."""
