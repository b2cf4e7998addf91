"""Models of the reproductions: given, fine-tuned by headlab's own command, or stored in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from headlab.errors import HeadlabError
from headlab.hooks.model import Model, attach
from headlab.models.load import pick_device, read
from headlab.records import content_key
from headlab.reproduce.held import TASKS, UDPOS, XNLI, Plan
from headlab.store import ADAPTERS
from headlab.tasks import task as task_of
from headlab.tasks.base import Task
from headlab.training.finetune import finetune
from headlab.training.options import FinetuneStep, options_of
from headlab.training.output import find_base
from headlab.training.steps import facts

# Models that a reproduction stores in the cache; their files may be damaged or outdated by the time they are read.

VERSION = 1  # of the folders' contents; part of their names, so that older ones are not used


@contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """While a record is read, turn missing or invalid entries into a HeadlabError that says what to do."""
    try:
        yield
    except (HeadlabError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise HeadlabError(
            f"{folder} is not what this version writes; delete it and run the command again",
            code="reproduce.folder_other_version",
        ) from error


# The two models of the reproduction: one is given, one is fine-tuned by headlab's own command.

NLI, TAGGER = "e5-small-xnli", "e5-small-udpos"


def nli_folder(data: Path, given: Path | None) -> Path:
    """Folder of the model fine-tuned on English NLI: the one given, or the one beside the data.

    Raises HeadlabError if it is not there.
    """
    folder = given or data.resolve().parent / "models" / NLI
    if not (folder / "config.json").is_file():
        raise HeadlabError(
            f"{folder} holds no model fine-tuned on NLI; name its folder with --nli-model",
            code="reproduce.nli_model_missing",
        )
    return folder


def opened(folder: Path, name: str, device: str | None, dtype: str) -> Model:
    """A model under a name that does not depend on its folder's path, so that cached results are found again."""
    return attach(replace(read(str(folder), device=device, dtype=dtype), name=name, revision="folder"))


def fast_dtype(device: str | None) -> str:
    """Dtype to compute in: bfloat16 on a processor with native support, about three times as fast; else float32."""
    if pick_device(device).type != "cpu":
        return "float32"
    able: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # torch has it since 2.9 or so
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


def tagger_folder(task: Task, root: Path, steps: int, device: str, progress: Callable[[FinetuneStep], None]) -> Path:
    """Folder of the embedded base fine-tuned on English tags, below `root`; trained first if it is missing.

    As `headlab finetune --task udpos --method full --steps N` does it.  Raises HeadlabError without English data.
    """
    examples, base = task.examples("en", "train"), find_base()
    options = options_of("small", "full", len(examples), steps=steps)
    key = content_key([facts(examples, task.labels), options.record(), base.sha256])
    out = root / ADAPTERS / f"{TAGGER}-{key[:12]}"
    if not (out / "config.json").is_file():
        finetune(base, examples, task.labels, out=out, options=options, device=device, progress=progress)
    return out


def check(plan: Plan, data: Path, given: Mapping[str, Path | None]) -> None:
    """Raise HeadlabError, before hours are spent, for a missing model or missing examples."""
    nli_folder(data, given[XNLI])
    for name in TASKS:
        task = task_of(name, data=data)
        for language in plan.languages(task):
            for split in ("dev", "test"):
                task.examples(language, split, 1)
    tagger = given[UDPOS]
    if tagger is None:
        task_of(UDPOS, data=data).examples("en", "train", 1)
    elif not (tagger / "config.json").is_file():
        raise HeadlabError(
            f"{tagger} holds no model; name the folder of one with --udpos-model, or leave it out",
            code="reproduce.tagger_missing",
        )
