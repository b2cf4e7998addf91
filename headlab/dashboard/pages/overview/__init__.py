"""Overview: what was found, and where to go next."""
