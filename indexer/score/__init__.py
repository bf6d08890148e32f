"""[pure] Presence in, numbers out."""
