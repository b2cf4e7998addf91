"""How an All-attention Transformer knows the order of its tokens."""

from __future__ import annotations

RELATIVE = "relative"
LEARNED = "learned"
POSITIONS = (RELATIVE, LEARNED)
