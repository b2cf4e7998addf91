"""What lm-evaluation-harness asks of a model and what its answers come to, without the harness itself."""
