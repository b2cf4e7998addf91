"""Prune: what the model loses or gains without some heads, and a smaller model by cost."""
