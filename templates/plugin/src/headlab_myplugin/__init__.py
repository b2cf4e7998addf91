"""A method and a task for headlab, found by the entry points in pyproject.toml."""
