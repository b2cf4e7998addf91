"""Masks: two masks side by side."""
