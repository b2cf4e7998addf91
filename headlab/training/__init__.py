"""Training of the shipped models and of users' own: fine-tuning, gates, language models and translation models."""
