"""One run on many devices: its parts are computed remotely and merged in order."""
