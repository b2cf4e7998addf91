"""Training what the package ships and what users make: LoRA fine-tuning on English."""
