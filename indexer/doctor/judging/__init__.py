"""[pure] What the facts of a deployment mean, one concern a file; each function gives findings."""
