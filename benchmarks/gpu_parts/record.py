"""What a part of the GPU benchmark has measured so far: printed line by line, and kept on disk."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Record:
    """The figures of one part.

    Every figure is printed and written to the disk as soon as it is known, so that a part that is
    ended by its time limit loses only the figure it was working on.
    """

    def __init__(self, part: str, path: Path) -> None:
        self.part = part
        self.figures: dict[str, Any] = {}
        self._path = path
        self._began = time.perf_counter()
        self._write(is_complete=False)

    def add(self, name: str, value: Any) -> None:
        """Keep and print one figure."""
        self.figures[name] = value
        print(f"{self.part:6} {self.seconds:6.1f} s  {name}: {figure_text(value)}", flush=True)
        self._write(is_complete=False)

    def measure(self, name: str, measurement: Callable[[], Any]) -> Any:
        """Keep what a measurement gives, or its error; an error does not end the part.

        Returns:
            The measured value, or None if the measurement failed.
        """
        try:
            value = measurement()
        except Exception as error:  # one figure's failure is not another's; it is kept and shown
            self.add(name, failure(error))
            return None
        self.add(name, value)
        return value

    @property
    def seconds(self) -> float:
        """Seconds since the part began."""
        return time.perf_counter() - self._began

    def finish(self) -> None:
        """Mark the part as complete."""
        self._write(is_complete=True)

    def _write(self, *, is_complete: bool) -> None:
        content = {
            "finished": is_complete,
            "seconds": round(self.seconds, 1),
            "figures": with_four_digits(self.figures),
        }
        temporary = unfinished_file(self._path)
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(self._path)


def unfinished_file(path: Path) -> Path:
    """Where a record is written before it gets its name."""
    return path.with_suffix(".tmp")


def failure(error: BaseException) -> dict[str, Any]:
    """An error as a figure: its message, and the last lines of where it was raised."""
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return {"error": f"{type(error).__name__}: {error}"[:600], "traceback": lines[-12:]}


def is_failure(figure: Any) -> bool:
    """Whether a figure is an error."""
    return isinstance(figure, dict) and "error" in figure


def figure_text(value: Any) -> str:
    """A figure as one line of text."""
    if is_failure(value):
        return f"FAILED, {value['error'].splitlines()[0]}"
    return json.dumps(with_four_digits(value))[:400]


def with_four_digits(value: Any) -> Any:
    """The same figures with four significant digits."""
    if isinstance(value, dict):
        return {str(name): with_four_digits(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [with_four_digits(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.4g}")
    return value
