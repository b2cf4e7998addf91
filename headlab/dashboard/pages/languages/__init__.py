"""Languages: which rank the heads alike, and where they differ."""
