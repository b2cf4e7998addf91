"""One head: all that is known of it, what changes without it, and the masks without it."""
