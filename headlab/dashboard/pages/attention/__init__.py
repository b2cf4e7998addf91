"""Attention: where chosen heads look."""
