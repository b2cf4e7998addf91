"""The All-attention Transformer: persistent vectors in the heads replace the feed-forward layers."""

from __future__ import annotations

RELATIVE, LEARNED = "relative", "learned"
POSITIONS = (RELATIVE, LEARNED)
