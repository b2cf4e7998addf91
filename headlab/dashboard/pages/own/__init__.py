"""Bring your own: a model and examples."""
