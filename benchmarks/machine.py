"""What a benchmark ran on, and how its results are written."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headlab.core import allowed_processors
from headlab.core.versions import commit as commit

ROOT = Path(__file__).resolve().parents[1]


def machine_facts() -> dict[str, Any]:
    """The machine this runs on, and how busy it is."""
    cpu_name = re.search(
        r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
    )
    return {
        "cpu": cpu_name.group(1) if cpu_name else platform.machine(),
        "cores": allowed_processors(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
    }


def installed_version(package: str) -> str:
    """A package's version; headlab may run from its folder."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile of measured values, as `p50` and `p95`."""
    return {f"p{percent}": float(np.percentile(values, percent)) for percent in (50, 95)}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write JSON with numbers rounded to four decimals."""
    rounded_value = json.loads(json.dumps(value), parse_float=lambda text: round(float(text), 4))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(rounded_value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
