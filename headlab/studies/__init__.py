"""One question a file: the analyses of the papers, put together from pieces that are kept (docs/experiments.md)."""

from __future__ import annotations
