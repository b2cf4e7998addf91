"""One thread at a time imports torch and its kin: two at once see each other's modules half made, and fail."""

from __future__ import annotations

import threading

IMPORTING = threading.Lock()
