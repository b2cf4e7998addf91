"""One command at a time: each HeadlabError becomes one sentence and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from headlab.cli.application import build as build
from headlab.cli.application import on_demand
from headlab.core import (
    MEMORY_FULL_WORDS,
    HeadlabError,
    is_out_of_memory,
    limit_threads,
    missing_package,
    reason_of,
)

OK = 0
FAILED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    limit_threads(os.environ)
    with usable_streams(), warnings_as_sentences():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command and write out what it printed; returns its exit code."""
    try:
        try:
            on_demand().main(
                args=None if arguments is None else list(arguments), prog_name="headlab"
            )
        finally:
            sys.stdout.flush()
    except HeadlabError as error:
        # The code is the name of a page of the documentation: errors/CODE. It comes first, as a
        # sentence may end with a command to be copied.
        print_error(f"[{error.code}] {error}")
        return FAILED
    except BrokenPipeError:
        # Whoever read the output has left, as in `headlab cache | head`.
        forget_output()
        return FAILED
    except ModuleNotFoundError as error:
        package = missing_package(error)
        if not package:
            raise
        print_error(
            f"this needs the package {package}, which is not installed; run: "
            "pip install 'headlab[all]'"
        )
        return FAILED
    except (MemoryError, RuntimeError, OSError, ImportError) as error:
        if is_out_of_memory(error):
            first_line = str(error).strip().partition("\n")[0] or type(error).__name__
            print_error(f"{MEMORY_FULL_WORDS} ({first_line})")
        elif isinstance(error, OSError):
            print_error(unusable_file_words(error))
            forget_output()
        else:
            raise
        return FAILED
    except SystemExit as exit_request:
        # typer always exits this way: done, help shown, a wrong argument, Ctrl-C.
        if exit_request.code == INTERRUPTED:
            print_error(
                "interrupted; score, curve, front, experiment, reproduce, gates, finetune and "
                "train resume where they stopped when run again"
            )
        if exit_request.code is None:
            return OK
        if isinstance(exit_request.code, int):
            return exit_request.code
        return FAILED
    return OK


def print_error(sentence: str) -> None:
    """Print a sentence on stderr, if anything can be printed there."""
    with suppress(OSError):
        print(f"headlab: {sentence}", file=sys.stderr)


def forget_output() -> None:
    """Drop what stdout still holds.

    Python would try to write it at exit, and complain.
    """
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def unusable_file_words(error: OSError) -> str:
    """A sentence for what the system says of a file, wherever it was used."""
    if error.filename is None:
        return (
            f"the output cannot be written, or a file cannot be read ({reason_of(error)}); "
            "check where they are"
        )
    return (
        f"cannot use {error.filename!r:.300} ({reason_of(error)}); "
        "check the path, and what you may do there"
    )


@contextmanager
def usable_streams() -> Iterator[None]:
    """Let the command print anything anywhere.

    Without stdout or stderr (`>&-`) what is printed goes nowhere; letters that their encoding lacks
    are written as escapes.
    """
    with ExitStack() as stack:
        nowhere = Path(os.devnull)
        if sys.stdout is None:
            stack.enter_context(redirect_stdout(stack.enter_context(nowhere.open("w"))))
        if sys.stderr is None:
            stack.enter_context(redirect_stderr(stack.enter_context(nowhere.open("w"))))
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        yield


@contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Print each UserWarning once, as one line without its code location."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        usual_showwarning = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *location: Any, **options: Any
        ) -> None:
            if category is not UserWarning:
                usual_showwarning(message, category, *location, **options)
            elif str(message) not in printed:
                printed.add(str(message))
                print(f"headlab: note: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield
