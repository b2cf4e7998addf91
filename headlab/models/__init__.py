"""From a name to weights in memory: embedded, folder or hub."""
