"""Models trained from nothing."""
