"""Gates that learn: Hard Concrete gates on heads, under a penalty for each one that is open (Voita et al. 2019)."""
