"""A fleet without engines: recorded streams published as an engine publishes them, and a live table over it."""
