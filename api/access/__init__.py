"""Who may ask for what: callers, what they may do, and whose engines they see. The same for every face."""
