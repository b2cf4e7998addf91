"""One folder a page. Pages do not import pages."""
