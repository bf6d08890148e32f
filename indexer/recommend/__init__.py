"""Where to send a request: prefix and load in one number, whose terms are told."""
