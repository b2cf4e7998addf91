"""Results as one self-contained HTML file: maps, curves, tables, masks, and the commands that reproduce them."""

from __future__ import annotations
