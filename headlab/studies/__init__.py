"""The analyses of the papers, one question per file, assembled from stored pieces (docs/experiments.md)."""

from __future__ import annotations
