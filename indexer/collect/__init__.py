"""[I/O] Engines' sockets in, ordered raw batches out."""
