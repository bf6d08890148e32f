"""Shapes that cross a process border. No behaviour, no imports from indexer or api."""
