"""One run on many devices: parts of it are answered elsewhere, and merged in their order."""
