"""The figures of each study, drawn from what it found."""
