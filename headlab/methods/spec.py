"""Specs of results: everything that scores or answers on some examples depend on."""

from __future__ import annotations

from dataclasses import replace

from headlab.core import (
    COUNTERFACTUAL,
    RESULT_FORMAT,
    JsonRecord,
    MethodSpec,
    ModelSpec,
    RunSpec,
    TaskSpec,
    as_plain_object,
    content_key,
    read_ablation,
)
from headlab.evaluation import Dataset, classes_for_spec
from headlab.hooks import tokens_version
from headlab.methods.method import Method, recorded_version
from headlab.results import ANSWERS_KIND
from headlab.tasks import DEV_SIZE


def make_spec(
    dataset: Dataset, method_row: Method, options: JsonRecord, seed: int, ablation: str
) -> RunSpec:
    """Everything that the numbers of a run depend on; its key names the run.

    Args:
        dataset: The examples.
        method_row: The method.
        options: Its resolved options.
        seed: Of the run.
        ablation: What stands in the place of a removed head.
    """
    version = recorded_version(method_row.version_of(options))
    method = MethodSpec(method_row.key, as_plain_object(method_row.recorded(options)), version)
    return replace(_evaluation_spec(dataset, ablation), method=method, seed=seed)


def answers_spec(dataset: Dataset, ablation: str = "zero") -> RunSpec:
    """Everything that answers depend on except the mask; its key names their folder.

    The kind of device is part of it, unless it is the processor: a masked model's answers are
    compared with these one by one, and another kind of device may round an answer the other way.
    """
    device = dataset.model.device.type
    return replace(
        _evaluation_spec(dataset, ablation),
        kind=ANSWERS_KIND,
        device="" if device == "cpu" else device,
    )


def _evaluation_spec(dataset: Dataset, ablation: str) -> RunSpec:
    """What every result of some examples depends on."""
    task = dataset.task
    examples = TaskSpec(
        name=task.name,
        language=dataset.language,
        split=dataset.split,
        size=len(dataset.examples),
        seed=task.seed,
        data_hash=task.data_hash(dataset.examples),
        more={
            **classes_for_spec(dataset.model, task),
            **tokens_version(dataset.model, dataset.examples),
        },
    )
    means = ""
    if ablation == "mean":  # over these examples, whichever split is scored or evaluated
        means = task.data_hash(task.examples(dataset.language, "dev", DEV_SIZE))
    contrasts = ""
    if ablation == COUNTERFACTUAL:  # which are in no hash of the examples themselves
        contrasts = content_key([[e.id, *e.counterfactuals] for e in dataset.examples])
    return RunSpec(
        format=RESULT_FORMAT,
        model=ModelSpec.from_json(dataset.model.spec_identity()),
        task=examples,
        ablation=read_ablation(ablation),
        means=means,
        contrasts=contrasts,
        players="" if dataset.model.players.are_heads else str(dataset.model.players),
        groups=dataset.model.grid.members_sha256,
    )
