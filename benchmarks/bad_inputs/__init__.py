"""Ten thousand inputs, each valid but for one thing, and what headlab answers to each of them."""
