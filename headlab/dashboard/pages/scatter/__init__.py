"""Scatter: all heads by any two of their measures, and what to do with some of them."""
