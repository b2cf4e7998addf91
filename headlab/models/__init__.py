"""Loading weights by name: embedded model, folder or hub id."""
