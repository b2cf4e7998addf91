"""Training what the package ships and what users make: full fine-tuning and LoRA, on one language."""
