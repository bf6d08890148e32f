"""[pure] Who owns what."""
