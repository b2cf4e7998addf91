"""What stands around every page: the worker, the shared choice, the sidebar, the guide, errors as sentences."""
