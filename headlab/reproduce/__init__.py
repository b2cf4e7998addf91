"""Reproduce published papers, on models and data that are at hand."""
