"""Bars of progress of the library's long functions: when one is shown, and what it shows.

The bar is tqdm's: a widget in a notebook, a line on stderr elsewhere. Commands and the worker show
progress of their own, and pass a callback.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from headlab.core.errors import HeadlabError
from headlab.core.records import Progress

ReportProgress = Callable[[Progress], None]

SWITCHED_OFF = "TQDM_DISABLE"
"""The variable of tqdm's by which all its bars are switched off."""
SECONDS_UNSEEN = 0.5
"""A bar that nobody asked for comes after so many seconds: shorter work shows none."""
BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
"""Shares alone: what is counted differs by method, and totals are estimates that may grow."""
WIDTH, HEIGHT = 100, 24
"""In letters and lines, where nothing says how large the terminal is."""
MAX_NOTE = 48
"""Longer notes are cut, so that they leave room for the bar."""


@contextmanager
def shown_progress(
    title: str, progress: bool | None, on_progress: ReportProgress | None = None
) -> Iterator[ReportProgress]:
    """Show the progress of a block as a bar; it is closed however the block ends.

    Args:
        title: Of the bar.
        progress: Whether there is a bar; None for one in a notebook and on a terminal, unless the
            caller takes the progress itself.
        on_progress: The caller's own callback.

    Yields:
        A function that is called with the progress.

    Raises:
        HeadlabError: `progress` is neither True, False nor None.
    """
    _check_flag(progress)
    if not _is_bar_shown(progress, on_progress):
        yield on_progress or _ignore
        return
    with closing(_bar(title, delay=0.0 if progress else SECONDS_UNSEEN)) as bar:

        def report(step: Progress) -> None:
            _advance(bar, step)
            if on_progress is not None:
                on_progress(step)

        yield report
        bar.update(1.0 - bar.n)


def _check_flag(progress: object) -> None:
    """Raise HeadlabError for what does not say whether there is a bar."""
    if progress is not None and not isinstance(progress, bool):
        raise HeadlabError(
            f"progress is {progress!r:.60} ({type(progress).__name__}); give True for a bar, False for "
            "none, or None for one in notebooks and on terminals",
            code="argument.wrong_type",
        )


def _is_bar_shown(progress: bool | None, on_progress: ReportProgress | None) -> bool:
    """Whether a call shows a bar: if asked to, or by itself where a person looks."""
    if progress is not None:
        return progress
    if on_progress is not None or os.environ.get(SWITCHED_OFF):
        return False
    return _is_in_notebook() or _is_terminal(sys.stderr)


def _is_in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def _is_terminal(stream: Any) -> bool:
    """Whether a stream is an open terminal; a process without a console has no stream."""
    return stream is not None and not stream.closed and bool(stream.isatty())


def _has_width(stream: Any) -> bool:
    """Whether a terminal says how wide it is; one of no columns would show an empty bar."""
    try:
        return os.get_terminal_size(stream.fileno()).columns > 0
    except (AttributeError, OSError, ValueError):
        return False


def _bar(title: str, delay: float) -> Any:
    """A bar from 0 to 1 that has not begun.

    Args:
        title: Stands before it.
        delay: Seconds until it is seen.
    """
    with warnings.catch_warnings():
        # Of a notebook without ipywidgets, where the bar is a line of text.
        warnings.filterwarnings("ignore", "IProgress not found")
        from tqdm.auto import tqdm

    has_width = _is_in_notebook() or _has_width(sys.stderr)
    return tqdm(
        desc=title,
        total=1.0,
        miniters=0,
        bar_format=BAR,
        ncols=None if has_width else WIDTH,
        nrows=None if has_width else HEIGHT,
        dynamic_ncols=has_width,
        delay=delay,
        disable=False,
        leave=True if _is_in_notebook() else None,  # None: below another bar, it goes at its end
    )


def _advance(bar: Any, step: Progress) -> None:
    """Move the bar to a step; it goes back where the work has turned out to be more."""
    share = step.done / step.total if step.total else 0.0
    note = step.note if len(step.note) <= MAX_NOTE else f"{step.note[: MAX_NOTE - 1]}…"
    bar.set_postfix_str(note, refresh=False)
    bar.update(min(share, 1.0) - bar.n)


def _ignore(step: Progress) -> None:
    """Take a step's progress where nobody looks."""
