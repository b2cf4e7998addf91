"""Puts what pages show first into the cache: `python tools/fill_cache.py`.

That is, the reports under docs/results, and the answers of the demo model with all heads on, with
which the Prune page compares every mask. The reports are of models and data that are not shipped,
so that nobody can make them here again; a report holds numbers and no sentence of the data. Their
date is that of the commit that last changed their file.

Of the decoder it adds its answers on `repeats`, with all heads on and without the induction heads
that the report on its roles finds: what the Overview says of them. For the Pairs page it measures
how some heads interact (INTERACTIONS). Other players than heads are scored where a newcomer can
look at them (PLAYERS): groups of neurons of the encoder, key-value groups of the decoder.

It also scores the heads of the embedded `e5-small-slots` on `slots` in all languages by the methods
that take minutes (METHODS); with `--data DIR` and `--nli FOLDER` those of e5-small-xnli on XNLI,
and with `--tagger FOLDER` those of the tagger that `headlab reproduce held` trains (e5-small-udpos)
on part-of-speech tags.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headlab import load, task
from headlab.core import Report, part, read_json
from headlab.dashboard.panels.masks.mask_figures import EXAMPLES_BY_SPLIT
from headlab.evaluation import Evaluator
from headlab.hooks import Model
from headlab.masks import Mask, full_mask
from headlab.methods import answers_spec, model_with_players
from headlab.methods.run import score
from headlab.reproduce.held import TAGGER
from headlab.reproduce.models import NLI, open_model
from headlab.results import Store, kept_heads_without
from headlab.roles import NAME, read_roles
from headlab.studies.run import Pieces, run_experiment
from headlab.tasks import Task
from headlab.tasks.intents.classes import LANGUAGES
from headlab.worker.answers import evaluations_of_baseline

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = ("held", "roles")
METHODS = ("gradient", "confidence")
DECODER = "smollm2-135m"
DATE_SOURCE = "by the commit of its file under docs/results"


class MeasuredPairs(NamedTuple):
    """Heads of a model whose interactions are measured.

    Attributes:
        model: Its name.
        dtype: Number format that it computes in.
        task: The task.
        language: Its language.
        dev_size: Examples of dev.
        heads: The heads.
        target: Half-width of the intervals, as a share.
    """

    model: str
    dtype: str
    task: str
    language: str
    dev_size: int
    heads: str
    target: float


INTERACTIONS = (
    MeasuredPairs("e5-small-intents", "float32", "intents", "de", 512, "9.3,9.4,10.6", 0.01),
    # Two heads that look at the token before, and three induction heads.
    MeasuredPairs(DECODER, "bfloat16", "repeats", "en", 64, "1.3,1.4,16.0,18.6,18.7", 0.04),
)


class ScoredPlayers(NamedTuple):
    """Other players than heads of a model, and how they are scored.

    Attributes:
        model: Its name.
        task: The task.
        languages: Its languages.
        players: What is switched.
        method: The method.
        dev_size: Examples of dev.
        options: The method's.
    """

    model: str
    task: str
    languages: tuple[str, ...]
    players: str
    method: str
    dev_size: int
    options: Mapping[str, Any]


PLAYERS = (
    ScoredPlayers(
        "e5-small-intents",
        "intents",
        ("de", "fi", "bg"),
        "heads,neurons:8",
        "smoothed",
        512,
        {"samples": 1024},
    ),
    ScoredPlayers(DECODER, "repeats", ("en",), "kv-groups", "leave-one-out", 16, {}),
    ScoredPlayers(
        "e5-small-intents", "intents", ("de",), "neurons:8", "shapley", 512, {"target": 0.05}
    ),
)


def reports() -> Iterator[tuple[Path, Report]]:
    """(file, report) of every committed report on one model, without summaries over several."""
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.json")):
            report = Report.from_json(read_json(path))
            if "model" in report.spec:
                yield path, report


def commit_time(path: Path) -> str:
    """When a file was last committed, ISO 8601."""
    command = ["git", "log", "-1", "--format=%cI", "--", str(path)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def store_baselines(store: Store) -> None:
    """Store the baseline answers of the demo model to the examples that the Prune page shows.

    Answers that are already stored are kept.
    """
    model = load("e5-small-intents", device="cpu")
    for language in LANGUAGES:
        for split, size in EXAMPLES_BY_SPLIT.items():
            evaluator = Evaluator(model, task("intents"), language, split, size)
            for _ in evaluations_of_baseline(evaluator, store):
                pass  # each evaluation is stored as it comes


def store_answers_without_role(store: Store, model: Model, role: str, task_name: str) -> None:
    """Store the answers of a model with all heads on, and without those of a role.

    Answers that are already stored are kept.

    Args:
        store: Holds a report on the roles of the model's heads.
        model: The model.
        role: Group of roles whose heads are switched off.
        task_name: Of the task whose examples are answered.
    """
    report = next(
        result.record
        for result in store.reports().results
        if result.record.name == NAME
        and part(result.record.spec, "model", "fingerprint") == model.spec_identity()["fingerprint"]
    )
    roles = read_roles(report)
    grid = model.grid
    removed_indices = [grid.index(head) for head in roles.grid.heads if role in roles.groups(head)]
    mask = Mask(grid, kept_heads_without(removed_indices, grid.size))
    for split, size in EXAMPLES_BY_SPLIT.items():
        evaluator = Evaluator(model, task(task_name), "en", split, size)
        for _ in evaluations_of_baseline(evaluator, store):
            pass
        stored_run = store.run(answers_spec(evaluator.dataset))
        if stored_run.answers(mask.digest, evaluator.examples) is None:
            stored_run.keep_answers(mask.digest, evaluator.evaluate(mask), evaluator.inputs.units)


def score_heads(store: Store, model: Model, scored_task: Task) -> None:
    """Score the heads of a model in every language of a task, unless they are stored already."""
    for method in METHODS:
        for language in scored_task.languages:
            score(
                model, scored_task, language=language, method=method, size=512, seed=0, store=store
            )


def store_interactions(store: Store, measured: MeasuredPairs) -> None:
    """Measure how some heads interact, unless that is stored already."""
    pieces = Pieces(
        load(measured.model, device="cpu", dtype=measured.dtype),
        task(measured.task, languages=[measured.language]),
        store,
        dev_size=measured.dev_size,
        test_size=EXAMPLES_BY_SPLIT["test"],
    )
    options = {"heads": measured.heads, "target": measured.target}
    run_experiment("interactions", pieces, options=options)


def score_players(store: Store, scored: ScoredPlayers) -> None:
    """Score other players than heads, unless they are scored already.

    The untouched model's answers to the examples of the Prune page are those that it gives where
    heads are switched; so they are copied, where these are stored.
    """
    scored_task = task(scored.task)
    model_of_heads = load(scored.model, device="cpu")
    model = model_with_players(model_of_heads, scored_task, scored.players, store=store)
    for language in scored.languages:
        score(
            model,
            scored_task,
            language=language,
            method=scored.method,
            size=scored.dev_size,
            seed=0,
            store=store,
            **scored.options,
        )
        for split, size in EXAMPLES_BY_SPLIT.items():
            of_heads = Evaluator(model_of_heads, scored_task, language, split, size)
            of_players = Evaluator(model, scored_task, language, split, size)
            copy_baseline(store, of_heads, of_players)


def copy_baseline(store: Store, of_heads: Evaluator, of_players: Evaluator) -> None:
    """Keep the untouched model's answers for the game of other players too."""
    answers_of_heads = store.run(answers_spec(of_heads.dataset)).answers(
        full_mask(of_heads.model.grid).digest, of_heads.examples
    )
    stored_run = store.run(answers_spec(of_players.dataset))
    digest = full_mask(of_players.model.grid).digest
    if answers_of_heads is None or stored_run.answers(digest, of_players.examples) is not None:
        return
    stored_run.keep_answers(digest, answers_of_heads, of_players.inputs.units)


def main() -> None:
    """Write what the cache lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder with xnli/, as docs/tasks.md says")
    parser.add_argument("--nli", type=Path, help=f"folder of {NLI}")
    parser.add_argument("--tagger", type=Path, help=f"folder of {TAGGER}")
    arguments = parser.parse_args()
    store = Store(ROOT / "headlab" / "embedded" / "results")
    store_baselines(store)
    store_answers_without_role(store, load(DECODER, device="cpu"), "induction", "repeats")
    for measured_pairs in INTERACTIONS:
        store_interactions(store, measured_pairs)
    for scored_players in PLAYERS:
        score_players(store, scored_players)
    score_heads(store, load("e5-small-slots", device="cpu"), task("slots"))
    models_of_folders = ((arguments.nli, NLI, "xnli"), (arguments.tagger, TAGGER, "udpos"))
    for folder, model_name, task_name in models_of_folders:
        if folder:
            model = open_model(folder, model_name, None, "float32")
            score_heads(store, model, task(task_name, data=arguments.data))
    for path, report in reports():
        stored_run = store.run(report.spec)
        if not stored_run.is_finished:
            stored_run.finish(report, {"created": commit_time(path), "dated": DATE_SOURCE})


if __name__ == "__main__":
    main()
