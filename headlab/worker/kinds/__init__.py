"""Kinds of jobs: a module each, and the table that lists them."""
