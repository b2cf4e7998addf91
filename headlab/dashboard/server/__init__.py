"""What the server itself is made of: what it asks of every request, and how it ends."""
