"""`headlab export`, run on a model and a mask of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from headlab.cli.run import main


def export(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    form: str,
    *arguments: str,
    out: str = "out",
    mask: str | None = "mask.json",
) -> tuple[int, str, str]:
    """Run `headlab export` on five examples; gives its exit code, stdout and stderr.

    Args:
        folder: With the model.
        capsys: Has the output.
        form: Of the written model.
        arguments: Further ones.
        out: The folder in it that is written.
        mask: The file in it; None for no mask.
    """
    words = ["export", "--model", str(folder / "model"), "--out", str(folder / out)]
    if mask is not None:
        words += ["--mask", str(folder / mask)]
    code = main([*words, "--as", form, "--size", "5", "--repeats", "6", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err
