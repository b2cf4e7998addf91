"""Experiments: the papers' analyses."""
