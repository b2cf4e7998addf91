"""What computed a result: the versions that are kept beside it."""

from __future__ import annotations

import platform

import numpy as np
import torch
import transformers

from headlab import __version__


def versions() -> dict[str, str]:
    """Versions of what computed a result."""
    return {
        "headlab": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
