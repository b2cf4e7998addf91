"""The All-attention Transformer.

Persistent vectors in the heads replace the feed-forward layers.
"""

from __future__ import annotations

RELATIVE = "relative"
LEARNED = "learned"
POSITIONS = (RELATIVE, LEARNED)
