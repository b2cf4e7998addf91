"""One process that owns a device and a model: its live requests, its jobs and its client."""
