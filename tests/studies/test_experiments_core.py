"""Pieces of experiments, computed once and equal to a slow truth; runs that cost what was said, and resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.saved_models import save_family
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from test_inputs import PAIRS, WORDS

import headlab
from headlab.cli.main import main
from headlab.core import Bools, Progress, Report, duration_text
from headlab.evaluation import Evaluator, compare
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import Store
from headlab.studies import differences
from headlab.studies.run import (
    CACHED_EVALUATORS,
    Ask,
    Pace,
    Pieces,
    forecast,
    missing_pieces,
    run_experiment,
)
from headlab.studies.table import STUDIES, offered_experiments, study, study_run_by
from headlab.tasks import Split, Task

CASES: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "gpt2": tiny_task(),
    "bert-tokens": WORDS,
    "marian": PAIRS,
}
QUICK: dict[str, Any] = {"method": "leave-one-out", "k": 3}


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "DRAWS", 200)


@pytest.fixture
def make(model: Model, tmp_path: Path) -> Callable[..., Pieces]:
    """Pieces with nothing in memory, on the test's own store."""

    def pieces(**more: Any) -> Pieces:
        given: dict[str, Any] = {"store": Store(tmp_path), "dev_size": 10, "test_size": 20, **more}
        return Pieces(model, tiny_task(), **given)

    return pieces


def without(model: Model, *gone: int) -> Bools:
    kept = np.ones(model.grid.size, bool)
    kept[list(gone)] = False
    return kept


@pytest.mark.parametrize(
    ("family", "ablation"), [*((name, "zero") for name in CASES), ("bert-tokens", "mean")]
)
@pytest.mark.usefixtures("one_lane")  # a tie in the last bit must fall the same way on both sides
def test_answers_equal_those_of_a_fresh_evaluator_one_example_at_a_time(
    family: str, ablation: str
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = CASES[family]
    pieces = Pieces(model, task, ablation=ablation)
    for kept in (None, without(model, 1, 2, 3, 7)):
        fresh = Evaluator(model, task, "xx", "test", None, batch_size=1, state_bytes=0)
        want = fresh.evaluate(None if kept is None else Mask(model.grid, kept), ablation=ablation)
        got = pieces.answers("xx", kept)
        assert got.predicted.tolist() == want.predicted.tolist()
        assert got.correct.tolist() == want.correct.tolist()
        assert (got.ids, got.groups, got.total, got.language) == (
            want.ids,
            want.groups,
            want.total,
            "xx",
        )


def test_answers_do_not_depend_on_how_many_batches_run_at_once(
    model: Model, make: Callable[..., Pieces]
) -> None:
    import torch

    before = torch.get_num_threads()
    kept = without(model, 4)
    try:
        torch.set_num_threads(1)
        alone = make(store=None).answers("xx", kept)
        torch.set_num_threads(3)
        together = make(store=None).answers("xx", kept)
    finally:
        torch.set_num_threads(before)
    assert alone.predicted.tolist() == together.predicted.tolist()


def test_a_warm_store_makes_no_forward(model: Model, make: Callable[..., Pieces]) -> None:
    cold = make()
    kept = without(model, 1)
    scores = cold.scores("xx", "leave-one-out")
    want = (cold.answers("xx", kept), cold.answers("xx", kept, "dev"), cold.curve("xx", scores, 4))
    assert cold.forwards == scores.example_forwards + 20 + 10 + 4 * 20
    for pieces in (cold, make()):
        before = pieces.forwards
        again = pieces.scores("xx", "leave-one-out")
        assert again.values.tolist() == scores.values.tolist()
        got = (
            pieces.answers("xx", kept),
            pieces.answers("xx", kept, "dev"),
            pieces.curve("xx", scores, 4),
        )
        assert [e.correct.tolist() for e in got] == [e.correct.tolist() for e in want]
        assert pieces.forwards == before
    other = make(ablation="mean")
    assert not other.has_answers("xx", kept)
    assert other.available_scores("xx", "leave-one-out") is None


def test_without_a_store_memory_keeps_what_was_computed(
    model: Model, make: Callable[..., Pieces]
) -> None:
    pieces = make(store=None)
    pieces.scores("xx", "gradient")
    pieces.answers("xx", without(model, 1))
    spent = pieces.forwards
    pieces.scores("xx", "gradient")
    assert pieces.answers("xx", without(model, 1)).done
    assert pieces.forwards == spent > 0


def test_a_comparison_is_that_of_evaluate(model: Model, make: Callable[..., Pieces]) -> None:
    kept = without(model, 2, 3)
    fresh = Evaluator(model, tiny_task(), "yy", "test", 20)
    want = compare(fresh.evaluate(), fresh.evaluate(Mask(model.grid, kept)), seed=4)
    assert make(seed=4).comparison("yy", kept) == want


def test_random_scores_are_those_of_the_method_and_are_not_stored(
    model: Model, make: Callable[..., Pieces], tmp_path: Path
) -> None:
    pieces = make(seed=2)
    for seed in (None, 0, 7):
        want = headlab.score(
            model,
            tiny_task(),
            language="xx",
            method="random",
            seed=2 if seed is None else seed,
            size=10,
        )
        got = pieces.scores("xx", "random", seed=seed)
        assert (got.values.tolist(), got.spec) == (want.values.tolist(), want.spec)
    assert list(tmp_path.iterdir()) == []
    assert pieces.forwards == 0


def test_torn_answers_are_made_anew_and_the_log_says_so(
    model: Model, make: Callable[..., Pieces]
) -> None:
    want = make().answers("xx")
    store = make().store
    assert store is not None
    (folder,) = store.folders()
    (path,) = folder.glob("*.npz")
    path.write_bytes(path.read_bytes()[:99])
    again = make()
    assert again.answers("xx").correct.tolist() == want.correct.tolist()
    assert again.forwards == 20
    assert "answers under" in (folder / "log.txt").read_text()
    assert make().has_answers("xx")


def test_a_few_splits_stay_in_memory_and_no_layer_inputs(make: Callable[..., Pieces]) -> None:
    pieces = make(store=None)
    asked = [(language, split) for language in ("xx", "yy") for split in ("dev", "test")]
    found = []
    for language, split in asked:
        pieces.answers(language, None, split)
        found.append(pieces.evaluator(language, split))
        assert found[-1].bytes == 0
    kept = [
        pieces.evaluator(*names) is was for names, was in zip(asked[1:], found[1:], strict=True)
    ]
    assert kept == [True] * CACHED_EVALUATORS == [True] * 3
    assert pieces.evaluator(*asked[0]) is not found[0]


def test_of_too_many_answers_those_used_longest_ago_are_computed_again(
    make: Callable[..., Pieces], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlab.studies.run.CACHED_EVALUATIONS", 2)
    pieces = make(store=None)

    def is_known(language: str, split: Split) -> bool:
        was_known = pieces.has_answers(language, split=split)
        pieces.answers(language, None, split)
        return was_known

    first: tuple[str, Split] = ("xx", "dev")
    second: tuple[str, Split] = ("yy", "dev")
    third: tuple[str, Split] = ("xx", "test")
    asked = (first, second, first, third, first, second)
    assert [is_known(*names) for names in asked] == [False, False, True, False, True, False]


def test_asks_are_for_what_is_lacking(model: Model, make: Callable[..., Pieces]) -> None:
    pieces = make()
    kept = without(model, 1)
    asked = pieces.ask_scores("xx", "leave-one-out")
    assert (asked.kind, asked.method, asked.forwards) == ("scores", "leave-one-out", 120)
    assert pieces.ask_answers("xx", [None, kept, kept], unknown_masks=2).forwards == 4 * 20
    assert pieces.ask_answers("xx", [None], split="dev").forwards == 10
    assert pieces.ask_curve("xx", "random", seed=1, points=5).forwards == 100
    assert pieces.ask_curve("xx", "shapley").forwards == 13 * 20
    pieces.scores("xx", "leave-one-out")
    pieces.answers("xx", kept)
    pieces.curve("xx", pieces.scores("xx", "random", seed=1), 5)
    for warm in (pieces, make()):
        assert warm.ask_scores("xx", "leave-one-out").forwards == 0
        assert warm.ask_answers("xx", [None, kept]).forwards == 20
        assert warm.ask_answers("xx", [kept]).forwards == 0
        assert warm.ask_curve("xx", "random", seed=1, points=5).forwards == 0
    assert pieces.ask_scores("xx", "leave-one-out", seed=1).forwards == 120


# Runs


def test_a_run_costs_what_was_said_and_the_second_nothing(make: Callable[..., Pieces]) -> None:
    said = forecast("transfer", make(), QUICK)
    steps = list[Progress]()
    missing = missing_pieces("transfer", make(), QUICK)
    assert said.seconds is not None
    assert said.seconds > 0
    assert {ask.kind for ask in missing} == {"scores", "answers"}
    for word in (
        "forwards, about",
        "leave-one-out scores of 2 languages (240)",
        "as timed on dev examples of xx",
    ):
        assert word in said.sentence
    report = run_experiment("transfer", make(), options=QUICK, on_progress=steps.append)
    # One pass more an example than heads: the coalition that the others are compared with.
    assert said.forwards == 2 * 120 + 2 * 3 * 20
    assert report.example_forwards == said.forwards + 2 * 10
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert steps[-1].done == report.example_forwards <= steps[-1].total
    assert any(
        "all masks on yy (2 of 2): test answers in yy, 3 heads gone" in step.note for step in steps
    )
    again = make()
    assert forecast("transfer", again, QUICK).sentence == "the report is in the cache already"
    assert run_experiment("transfer", again, options=QUICK) == report
    assert again.forwards == 0


def test_a_pace_that_was_timed_serves_later_forecasts(make: Callable[..., Pieces]) -> None:
    paces: dict[tuple[str | None, ...], float] = {}
    first = forecast("transfer", make(paces=paces), QUICK)
    assert set(paces) == {(make().task.name, "xx", "dev")}
    assert forecast("transfer", make(paces=paces), QUICK).seconds == first.seconds
    paces[make().task.name, "xx", "dev"] *= 2
    assert forecast("transfer", make(paces=paces), QUICK).seconds == pytest.approx(
        2 * (first.seconds or 0)
    )


def test_others_are_served_while_the_device_is_timed(make: Callable[..., Pieces]) -> None:
    ticks = list[None]()
    assert forecast("transfer", make(tick=lambda: ticks.append(None)), QUICK).seconds is not None
    assert ticks


def test_pieces_of_one_experiment_serve_another(make: Callable[..., Pieces]) -> None:
    run_experiment("transfer", make(), options=QUICK)
    pieces = make()
    missing = missing_pieces("targeted", pieces, QUICK | {"runs": 2})
    assert {(ask.kind, ask.method) for ask in missing} == {
        ("scores", "gradient"),
        ("answers", ""),
    }
    run_experiment("gap", pieces, options=QUICK)
    assert pieces.forwards == 2 * 2 * 10  # dev answers alone
    assert forecast("gap", make(), QUICK | {"k": None}).sentence != ""
    assert (
        forecast("transfer", make(), QUICK | {"source": "xx"}).basis
        == "every piece is in the cache already"
    )


class Stopped(Exception):
    pass


@pytest.mark.parametrize("key", ["targeted", "transfer", "gap"])
def test_an_interrupted_run_goes_on_and_ends_the_same(
    key: str, make: Callable[..., Pieces], model: Model, tmp_path: Path
) -> None:
    options = QUICK | ({"runs": 2} if key == "targeted" else {})
    ticks = list[None]()
    whole = make(store=Store(tmp_path / "whole"), tick=lambda: ticks.append(None))
    want = run_experiment(key, whole, options=options)
    spent = []
    for left in (3 * len(ticks) // 4, len(ticks) // 2, len(ticks) // 4):

        def tick(budget: list[int] = [left]) -> None:  # noqa: B006 - counts
            budget[0] -= 1
            if budget[0] < 0:
                raise Stopped

        pieces = make(tick=tick)
        try:
            run_experiment(key, pieces, options=options)
        except Stopped:
            spent.append(pieces.forwards)
    assert spent
    report = run_experiment(key, make(), options=options)
    assert [table.to_json() for table in report.tables] == [
        table.to_json() for table in want.tables
    ]
    assert (report.notes, report.spec) == (want.notes, want.spec)
    assert report.example_forwards < want.example_forwards


def test_a_torn_report_is_made_anew_of_its_pieces(make: Callable[..., Pieces]) -> None:
    want = run_experiment("gap", make(), options=QUICK)
    store = make().store
    assert store is not None
    (found,) = store.reports().results
    path = found.folder / "result.npz"
    path.write_bytes(path.read_bytes()[:200])
    pieces = make()
    assert run_experiment("gap", pieces, options=QUICK).tables == want.tables
    assert pieces.forwards == 0
    assert "report skipped" in (found.folder / "log.txt").read_text()
    assert store.reports().problems == ()


def test_whatever_numbers_depend_on_names_the_report(
    make: Callable[..., Pieces], model: Model
) -> None:
    from dataclasses import replace

    from headlab.studies.run import report_spec

    def spec(pieces: Pieces, options: dict[str, Any]) -> str:
        about = STUDIES["targeted"]
        return report_spec(about, pieces, about.resolve(options)).key

    first = spec(make(), {})
    assert first == spec(make(), {"runs": 10, "method": "shapley"})
    others = [
        spec(make(seed=1), {}),
        spec(make(dev_size=11), {}),
        spec(make(test_size=None), {}),
        spec(make(ablation="mean"), {}),
        spec(make(), {"runs": 3}),
        spec(make(), {"method_options": {"samples": 9}}),
        spec(Pieces(model, tiny_task().restricted(["xx"]), dev_size=10, test_size=20), {}),
        spec(Pieces(model, replace(tiny_task(), seed=3), dev_size=10, test_size=20), {}),
    ]
    assert len({first, *others}) == 9


def test_options_left_out_and_defaults_spelled_out_give_one_report(
    make: Callable[..., Pieces],
) -> None:
    from headlab.methods import METHODS
    from headlab.studies.run import report_spec

    about = STUDIES["iterative"]
    full = {
        f"{name}_options": METHODS[key].resolve({})
        for name, key in (("method", "shapley"), ("monte_carlo", "monte-carlo"))
    }
    spaced = {"orderings": " random, monte-carlo,shapley,gradient,leave-one-out,random,"}
    keys = [
        report_spec(about, make(), about.resolve(options)).key
        for options in ({}, full, spaced, about.resolve({}), {"method_options": {"samples": 9}})
    ]
    assert keys[:4] == keys[:1] * 4
    assert keys[4] != keys[0]


def test_the_orderings_that_a_job_may_ask_for_are_those_there_are() -> None:
    from headlab.methods import ORDERINGS as MADE

    assert STUDIES["iterative"].lists["orderings"] == tuple(MADE)
    assert (
        STUDIES["iterative"].resolve({})["orderings"]
        == "random,monte-carlo,shapley,gradient,leave-one-out"
    )


def test_every_experiment_is_there_with_a_run_and_a_cost() -> None:
    from importlib import import_module

    keys = [
        "agreement",
        "targeted",
        "transfer",
        "iterative",
        "methods",
        "heads",
        "separators",
        "gap",
    ]
    assert list(offered_experiments()) == keys
    assert list(STUDIES) == [*keys, "front"]
    for about in STUDIES.values():
        module = import_module(f"headlab.studies.{about.module}")
        assert callable(module.run)
        assert callable(module.cost)
        assert about.resolve({}).keys() == about.options.keys()


def test_a_study_with_a_job_of_its_own_is_run_and_not_offered() -> None:
    assert study("front").job == "front"
    assert {about.job for about in offered_experiments().values()} == {"experiment"}
    assert "front" not in offered_experiments()
    with raises("experiment.unknown", "'front'", "headlab front"):
        study_run_by("experiment", "front")
    with raises("experiment.unknown", "'nothing'"):
        study("nothing")


@pytest.mark.parametrize(
    ("key", "options", "expected"),
    [
        ("nothing", {}, ("experiment.unknown", "'nothing'", "agreement")),
        ("gap", {"runs": 3}, ("experiment.option_unknown", "runs", "method")),
        (
            "gap",
            {"k": 0},
            ("experiment.option_invalid", "k", 0, "a whole number of 1 or more, or none"),
        ),
        (
            "iterative",
            {"orderings": "random,foo"},
            ("experiment.list_item_unknown", "orderings", "foo", "random, monte-carlo, shapley"),
        ),
        (
            "iterative",
            {"orderings": " ,"},
            ("experiment.list_item_unknown", "orderings", "none", "random"),
        ),
        (
            "iterative",
            {"monte_carlo_options": {"nope": 1}},
            ("method.option_unknown", "monte-carlo", "nope"),
        ),
        (
            "iterative",
            {"method_options": {"samples": -3}},
            ("method.option_invalid", "shapley", "samples", -3),
        ),
        (
            "iterative",
            {"method_options": 3},
            ("experiment.option_invalid", "method_options", 3, "options by name"),
        ),
        ("gap", {"k": 13, "method": "leave-one-out"}, ("head.count_out_of_range", 13, 12)),
        (
            "targeted",
            {"method": "gradient"},
            ("experiment.option_invalid", "method", "'gradient'", "shapley or"),
        ),
        ("targeted", {"method_options": {"sampels": 3}}, ("method.option_unknown", "sampels")),
        ("targeted", {"method_options": 3}, ("experiment.option_invalid", "method_options", 3)),
    ],
)
def test_what_does_not_fit_is_said(
    make: Callable[..., Pieces], key: str, options: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with raises(*expected):
        run_experiment(key, make(dev_size=4, test_size=4), options=options)


def test_one_language_is_too_few_to_compare_and_a_seed_is_not_negative(model: Model) -> None:
    alone = Pieces(model, tiny_task().restricted(["xx"]))
    with raises("experiment.languages_too_few", 2, 1):
        forecast("transfer", alone)
    with raises("seed.invalid", 0):
        forecast("gap", Pieces(model, tiny_task(), seed=-1))


def test_the_pace_of_stored_results_is_used(make: Callable[..., Pieces]) -> None:
    make().scores("xx", "gradient")
    said = forecast("targeted", make(), QUICK | {"runs": 1})
    assert "gradient at " in said.basis
    assert "as in the cache's results" in said.basis
    curve = Ask("curve", "xx", "a curve", 100)
    timed = Pace(make())
    known = Pace(make())
    assert timed.seconds_a_forward(curve) == timed.seconds_a_forward(
        Ask("answers", "xx", "some answers", 100)
    )
    made = make().curve("xx", make().scores("xx", "gradient"), 3)
    assert known.seconds_a_forward(curve) == made.seconds / made.example_forwards
    assert known.basis.endswith("a forward, as in the cache's")


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.2, "3 s"), (89, "89 s"), (1500, "25 min"), (9000, "2.5 h")]
)
def test_times_are_told_in_the_unit_that_suits(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("model") / "tiny", "bert")


@pytest.fixture
def known_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny task by its name."""
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


def command(folder: Path, cache: Path, *more: Any) -> list[str]:
    words = "experiment gap --task tiny --languages xx --method leave-one-out -o level=0.9 --option k=2 --size 16"
    return [
        *words.split(),
        "--test-size",
        "24",
        "--model",
        str(folder),
        "--cache",
        str(cache),
        *map(str, more),
    ]


@pytest.mark.usefixtures("known_task")
def test_the_command_tells_the_cost_then_the_tables_and_writes_what_is_asked_for(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[str, Path]] = []
    monkeypatch.setattr(
        "headlab.cli.figures.write_figures", lambda report, at: drawn.append((report.name, at))
    )
    assert main(command(folder, tmp_path / "cache", "--out", tmp_path / "out")) == 0
    out, err = capsys.readouterr()
    assert err.startswith("gap: ")
    for word in (
        "forwards, about",
        "leave-one-out scores of 1 language (192)",
        "answers of 1 language (120)",
    ):
        assert word in err
    assert out.startswith("## What a mask chosen on dev gains there and on test")
    assert "| xx | K lowest | 2 |" in out
    assert main(command(folder, tmp_path / "cache", "--json")) == 0
    printed, err = capsys.readouterr()
    assert err == "gap: the report is in the cache already\n"
    report = Report.from_json(json.loads(printed))
    assert report.spec["options"]["method_options"] == {"level": 0.9}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "gap-heads.csv",
        "gap.csv",
        "report.json",
    ]
    assert Report.from_json(json.loads((tmp_path / "out" / "report.json").read_text())) == report
    assert (tmp_path / "out" / "gap.csv").read_text() == report.table("gap").csv()
    assert drawn == [("gap", tmp_path / "out")]


def test_the_command_lists_the_experiments_without_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["experiment", "--list"], ["experiment"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert all(
            f"{about.key}: {about.question}" in out for about in offered_experiments().values()
        )
        assert "--option k=none: heads to remove" in out
    assert main(["experiment", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["experiments"]
    assert [about["key"] for about in listed] == list(offered_experiments())
    assert listed[1]["options"]["runs"] == {
        "default": 10,
        "help": "random choices of heads",
        "fits": "a whole number of 1 or more",
    }


@pytest.mark.usefixtures("known_task")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "unknown experiment 'nothing'"),
        (["front"], "'front' is no experiment; it has a command of its own: headlab front"),
        (["gap", "--option", "heads=3"], "no option heads"),
        (["gap", "-o", "sampels=3"], "has no option sampels"),
        (["gap", "--method", "magic"], "unknown method 'magic'"),
        (["iterative", "--method", "shapley"], "iterative does not choose a method"),
        (
            ["gap", "-o", "samples=3", "--option", 'method_options={"samples": 3}'],
            "by -o and by --option",
        ),
        (["gap", "--dtype", "float33"], "unknown dtype 'float33'"),
        (["gap", "--ablation", "half"], "unknown ablation 'half'"),
        (["transfer", "--languages", "xx"], "needs 2 or more, given 1"),
    ],
)
def test_the_command_ends_with_a_sentence_where_something_does_not_fit(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert (
        main(
            [
                "experiment",
                *words,
                "--task",
                "tiny",
                "--model",
                str(folder),
                "--cache",
                str(tmp_path),
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("key", offered_experiments())
def test_an_experiment_is_documented_with_its_options_and_defaults(key: str) -> None:
    about = STUDIES[key]
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"`{key}`\n"))
    assert f"*{about.question}*" in section
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line[:3] == "| `"
    ]
    documented = {cells[0].strip("`"): cells[1] for cells in rows if len(cells) == 3}
    shared = ("method", "method_options") if "method" in about.options else ()
    own = {name: o for name, o in about.options.items() if name not in shared}
    assert documented == {name: f"`{json.dumps(option.default)}`" for name, option in own.items()}
    assert all(option.help for option in about.options.values())
