"""What lm-evaluation-harness asks of a model, and its metrics, without the harness itself."""
