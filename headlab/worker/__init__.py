"""One process that owns a device and a model: live requests, jobs, and the client that asks it."""
