"""`headlab.load` and `headlab.evaluate`: a model whose heads can be gated, and its accuracy under a mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headlab.evaluator import Evaluator, accuracy_interval, compare
from headlab.hooks.model import Model, attach
from headlab.masks import Mask
from headlab.masks.mask import architecture_of
from headlab.masks.snippet import UNVERSIONED, Place
from headlab.models.embedded import EMBEDDED, is_delta
from headlab.models.load import read
from headlab.records import Comparison, Evaluation
from headlab.tasks.base import DEV_SIZE, Split, Task

# From a name to a model whose heads can be gated.


def load(name: str, *, revision: str | None = None, device: str | None = None, dtype: str = "float32") -> Model:
    """Load a model and make its heads gateable.

    name: an embedded name (`headlab models` lists them), a local folder, or a hub id.  revision: of
    the hub id.  device: "cpu", "cuda", ...; None uses a GPU if there is one.  dtype: "float32",
    "float64", "bfloat16" or "float16".  Weights are read from safetensors only, and no code shipped
    with a model is run.  Raises HeadlabError for an unknown or unsupported model.
    """
    return attach(read(name, revision=revision, device=device, dtype=dtype))


# The output projections of a loaded model's heads, by the module paths of transformers.


def place_of(model: Model) -> Place:
    """Paths, class and source of a model, for scripts that run without headlab, from any directory."""
    name, revision = model.name, model.checkpoint.revision
    paths = {module: path for path, module in model.module.named_modules()}
    projections = [paths[projection] for projection in model.projections]
    kind = architecture_of(model.module)
    if revision == UNVERSIONED:  # in another directory, a relative path would be taken for a hub id
        folder = str(Path(name).resolve())
        return Place(projections, kind, None if is_delta(Path(name)) else folder, revision, folder)
    return Place(projections, kind, None if name in EMBEDDED else name, revision, name)


# Accuracy under a mask in every language of a task, against the untouched model.


@dataclass(frozen=True)
class Report(Mapping[str, Comparison | Evaluation]):
    """Evaluations by language; `str` gives a table."""

    languages: Mapping[str, Comparison | Evaluation]

    def __getitem__(self, language: str) -> Comparison | Evaluation:
        return self.languages[language]

    def __iter__(self) -> Iterator[str]:
        return iter(self.languages)

    def __len__(self) -> int:
        return len(self.languages)

    def __str__(self) -> str:
        return "\n".join(describe(row) for row in self.languages.values())


def describe(row: Comparison | Evaluation) -> str:
    """One language as a line of text, in percent and points."""
    if isinstance(row, Evaluation):
        low, high = accuracy_interval(row)
        return f"{row.language:6} {row.accuracy:6.1%}  [{low:.1%}, {high:.1%}]  n={row.n}"
    points, lower, upper = (f"{100 * value:+.1f}" for value in (row.difference, row.low, row.high))
    return (
        f"{row.language:6} {row.accuracy:6.1%}  untouched {row.baseline:.1%}  difference {points} points "
        f"[{lower}, {upper}]  p={row.p:.3g}  right +{row.flipped_right} / wrong +{row.flipped_wrong}  n={row.n}"
    )


def evaluate(
    model: Model,
    task: Task,
    mask: Mask | None = None,
    *,
    split: Split = "dev",
    size: int | None = DEV_SIZE,
    ablation: str = "zero",
    seed: int = 0,
) -> Report:
    """Accuracy in every language of the task; with a mask, paired with the untouched model.

    seed: of the bootstrap.  Raises HeadlabError for a mask of another model or a task that does not fit the model.
    """
    rows: dict[str, Comparison | Evaluation] = {}
    for language in task.languages:
        evaluator = Evaluator(model, task, language, split, size)
        whole = evaluator.evaluate()
        rows[language] = whole if mask is None else compare(whole, evaluator.evaluate(mask, ablation=ablation), seed)
    return Report(rows)
