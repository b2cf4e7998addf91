"""The command line: `headlab score|evaluate|prune|finetune|models|tasks|cache|worker`."""
