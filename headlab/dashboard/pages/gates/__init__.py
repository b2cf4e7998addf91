"""Gates: heads kept by learning."""
