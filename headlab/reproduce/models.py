"""Models of the reproductions: given, or stored in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from headlab.core import HeadlabError
from headlab.hooks import Model, make_gateable
from headlab.models.load import pick_device, read_model

# Models that a reproduction stores in the cache; their files may be damaged or outdated by the time
# they are read.

VERSION = 1  # of the folders' contents; part of their names, so that older ones are not used


@contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """While a record is read, turn missing or invalid entries into a HeadlabError.

    The error says what to do.
    """
    try:
        yield
    except (HeadlabError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise HeadlabError(
            f"{folder} is not what this version writes; delete it and run the command again",
            code="reproduce.folder_other_version",
        ) from error


# The model that is given, and how any is opened.

NLI = "e5-small-xnli"


def nli_folder(data: Path, named_folder: Path | None) -> Path:
    """Folder of the model fine-tuned on English NLI: the one given, or the one beside the data.

    Raises HeadlabError if it is not there.
    """
    folder = named_folder or data.resolve().parent / "models" / NLI
    if not (folder / "config.json").is_file():
        raise HeadlabError(
            f"{folder} holds no model fine-tuned on NLI; name its folder with --nli-model",
            code="reproduce.nli_model_missing",
        )
    return folder


def open_model(folder: Path, name: str, device: str | None, dtype: str) -> Model:
    """A model under a name that does not depend on its folder's path.

    Cached results are then found again.
    """
    return make_gateable(
        replace(read_model(str(folder), device=device, dtype=dtype), name=name, revision="folder")
    )


def fast_dtype(device: str | None) -> str:
    """Dtype to compute in: bfloat16 on a processor with native support, else float32.

    bfloat16 is about three times as fast there.
    """
    if pick_device(device).type != "cpu":
        return "float32"
    able: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # torch has it since 2.9 or so
    if able.get("avx512_bf16") or able.get("amx_bf16"):
        return "bfloat16"
    return "float32"
