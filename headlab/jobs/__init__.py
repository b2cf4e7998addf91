"""Kinds of jobs: a class each, and the table that lists them."""
