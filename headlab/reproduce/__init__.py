"""Reproductions of published papers on available models and data."""
