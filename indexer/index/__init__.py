"""[pure] What the events mean: reverse maps, plans, the mirror and its walk, states."""
