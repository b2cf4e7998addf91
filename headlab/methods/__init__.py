"""Ways to score heads: one module a method, one table of them all."""
