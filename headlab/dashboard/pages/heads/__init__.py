"""Heads: one map per language, one head in every language."""
