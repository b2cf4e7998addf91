"""What a benchmark ran on, and how its results are written."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import allowed_processors

ROOT = Path(__file__).resolve().parents[1]


def machine() -> dict[str, Any]:
    """What this ran on."""
    told = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": told.group(1) if told else platform.machine(),
        "cores": allowed_processors(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
    }


def commit() -> str:
    """The commit that is measured, with a + where files differ from it."""
    asked = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    return subprocess.run(
        asked, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def installed(package: str) -> str:
    """A package's version; headlab may run from its folder."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """{p50, p95} of measured values."""
    return {f"p{at}": float(np.percentile(values, at)) for at in (50, 95)}


def write(path: Path, value: dict[str, Any]) -> None:
    """JSON with rounded numbers."""
    rounded = json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 4))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
