"""Results as a folder of pages that any server can host, or none: maps, scatter, a page a head."""
