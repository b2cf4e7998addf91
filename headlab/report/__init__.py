"""Results as one self-contained HTML file, with the commands that make them again."""

from __future__ import annotations
