"""What callers report of their requests, and what is remembered of answers to make sense of it."""
