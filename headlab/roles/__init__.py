"""What heads do: where they look, how sharply, and which roles of Voita et al. (ACL 2019) they have."""
