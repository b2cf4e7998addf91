"""Language models trained from nothing on a text file, and heads pruned from them for good."""
