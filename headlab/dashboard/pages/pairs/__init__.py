"""Pairs: which heads stand in for each other, and what that says of sets that are removed."""
