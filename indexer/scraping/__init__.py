"""Engines' own metrics: read once for all that is made of them."""
