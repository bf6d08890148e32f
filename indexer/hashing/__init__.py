"""[pure] Tokens in, local and token hashes out."""
