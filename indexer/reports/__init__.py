"""What an operator is told of how far answers could be trusted, over time."""
