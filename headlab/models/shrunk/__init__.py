"""Models some of whose heads are gone for good: what their layers look like, and the classes that hold them."""
