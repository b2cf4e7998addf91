"""Methods that score heads: one module per method, and a table of all of them."""
