"""The charts of each study, of what it found."""
