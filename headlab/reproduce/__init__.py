"""Papers done again, whole, on models and data that are at hand."""
