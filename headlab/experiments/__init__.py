"""The analyses of the papers, put together from pieces that are kept: see docs/experiments.md."""
