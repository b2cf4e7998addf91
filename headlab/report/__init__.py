"""Results as one self-contained HTML file: maps, curves, tables, masks, and the commands that make them again."""

from __future__ import annotations
