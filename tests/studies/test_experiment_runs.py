"""Pieces of experiments and runs of them.

Pieces are computed once and equal a slow second derivation; runs cost what was forecast, and
resume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.expected_errors import raises
from support.saved_models import save_family
from support.several_answers import PAIRS, WORDS
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.cli.run import main
from headlab.core import Bools, Progress, Report, RunSpec, duration_text
from headlab.evaluation import Evaluator, compare
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.results import Store
from headlab.studies import VOCABULARY, differences
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
from headlab.tasks import Example, Split, Task

CASES: dict[str, Task] = {
    "bert": tiny_task(),
    "deberta-v2": tiny_task(),
    "gpt2": tiny_task(),
    "bert-tokens": WORDS,
    "marian": PAIRS,
}
QUICK_OPTIONS: dict[str, Any] = {"method": "leave-one-out", "k": 3}


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model("bert", tokenizer=tiny_tokenizer())


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "DRAWS", 200)


@pytest.fixture
def make(model: Model, tmp_path: Path) -> Callable[..., Pieces]:
    """Makes pieces with nothing in memory, on the store of this test."""

    def pieces(**further_options: Any) -> Pieces:
        options: dict[str, Any] = {"store": Store(tmp_path), "dev_size": 10, "test_size": 20}
        return Pieces(model, tiny_task(), **options | further_options)

    return pieces


def kept_without(model: Model, *removed_heads: int) -> Bools:
    kept = np.ones(model.grid.size, bool)
    kept[list(removed_heads)] = False
    return kept


@pytest.mark.parametrize(
    ("family", "ablation"), [*((name, "zero") for name in CASES), ("bert-tokens", "mean")]
)
@pytest.mark.usefixtures("one_lane")  # a tie in the last bit must fall the same way on both sides
def test_answers_equal_those_of_a_new_evaluator_one_example_at_a_time(
    family: str, ablation: str
) -> None:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    task = CASES[family]
    pieces = Pieces(model, task, ablation=ablation)
    for kept in (None, kept_without(model, 1, 2, 3, 7)):
        evaluator = Evaluator(model, task, "xx", "test", None, batch_size=1, state_bytes=0)
        mask = None if kept is None else Mask(model.grid, kept)
        expected = evaluator.evaluate(mask, ablation=ablation)
        evaluation = pieces.answers("xx", kept)
        assert evaluation.predicted.tolist() == expected.predicted.tolist()
        assert evaluation.correct.tolist() == expected.correct.tolist()
        assert evaluation.ids == expected.ids
        assert evaluation.groups == expected.groups
        assert evaluation.total == expected.total
        assert evaluation.language == "xx"


def test_answers_do_not_depend_on_how_many_batches_run_at_once(
    model: Model, make: Callable[..., Pieces]
) -> None:
    import torch

    thread_count = torch.get_num_threads()
    kept = kept_without(model, 4)
    try:
        torch.set_num_threads(1)
        on_one_thread = make(store=None).answers("xx", kept)
        torch.set_num_threads(3)
        on_three_threads = make(store=None).answers("xx", kept)
    finally:
        torch.set_num_threads(thread_count)
    assert on_one_thread.predicted.tolist() == on_three_threads.predicted.tolist()


def test_a_warm_store_makes_no_forward(model: Model, make: Callable[..., Pieces]) -> None:
    cold = make()
    kept = kept_without(model, 1)
    scores = cold.scores("xx", "leave-one-out")
    test_answers = cold.answers("xx", kept).correct.tolist()
    dev_answers = cold.answers("xx", kept, "dev").correct.tolist()
    curve_answers = cold.curve("xx", scores, 4).correct.tolist()
    assert cold.forwards == scores.example_forwards + 20 + 10 + 4 * 20
    for pieces in (cold, make()):
        forwards_before = pieces.forwards
        stored_scores = pieces.scores("xx", "leave-one-out")
        assert stored_scores.values.tolist() == scores.values.tolist()
        assert pieces.answers("xx", kept).correct.tolist() == test_answers
        assert pieces.answers("xx", kept, "dev").correct.tolist() == dev_answers
        assert pieces.curve("xx", scores, 4).correct.tolist() == curve_answers
        assert pieces.forwards == forwards_before
    mean_pieces = make(ablation="mean")
    assert not mean_pieces.has_answers("xx", kept)
    assert mean_pieces.available_scores("xx", "leave-one-out") is None


def test_without_a_store_memory_keeps_what_was_computed(
    model: Model, make: Callable[..., Pieces]
) -> None:
    pieces = make(store=None)
    pieces.scores("xx", "gradient")
    pieces.answers("xx", kept_without(model, 1))
    forwards_before = pieces.forwards
    pieces.scores("xx", "gradient")
    assert pieces.answers("xx", kept_without(model, 1)).is_complete
    assert pieces.forwards == forwards_before > 0


def test_a_comparison_is_that_of_evaluate(model: Model, make: Callable[..., Pieces]) -> None:
    kept = kept_without(model, 2, 3)
    evaluator = Evaluator(model, tiny_task(), "yy", "test", 20)
    evaluation = evaluator.evaluate(Mask(model.grid, kept))
    expected = compare(evaluator.evaluate(), evaluation, seed=4)
    assert make(seed=4).comparison("yy", kept) == expected


def test_random_scores_are_those_of_the_method_and_are_not_stored(
    model: Model, make: Callable[..., Pieces], tmp_path: Path
) -> None:
    pieces = make(seed=2)
    task = tiny_task()
    for seed, seed_of_scores in ((None, 2), (0, 0), (7, 7)):
        expected = headlab.score(
            model, task, language="xx", method="random", seed=seed_of_scores, size=10
        )
        scores = pieces.scores("xx", "random", seed=seed)
        assert scores.values.tolist() == expected.values.tolist()
        assert scores.spec == expected.spec
    assert list(tmp_path.iterdir()) == []
    assert pieces.forwards == 0


def test_torn_answers_are_made_anew_and_the_log_says_so(
    model: Model, make: Callable[..., Pieces]
) -> None:
    expected = make().answers("xx")
    store = make().store
    assert store is not None
    (folder,) = store.folders()
    (path,) = folder.glob("*.npz")
    path.write_bytes(path.read_bytes()[:99])
    pieces = make()
    assert pieces.answers("xx").correct.tolist() == expected.correct.tolist()
    assert pieces.forwards == 20
    assert "answers under" in (folder / "log.txt").read_text()
    assert make().has_answers("xx")


def test_a_few_splits_stay_in_memory_and_no_layer_inputs(make: Callable[..., Pieces]) -> None:
    pieces = make(store=None)
    splits = [(language, split) for language in ("xx", "yy") for split in ("dev", "test")]
    evaluators = []
    for language, split in splits:
        pieces.answers(language, None, split)
        evaluators.append(pieces.evaluator(language, split))
        assert evaluators[-1].bytes == 0
    assert CACHED_EVALUATORS == 3
    for (language, split), evaluator in zip(splits[1:], evaluators[1:], strict=True):
        assert pieces.evaluator(language, split) is evaluator
    assert pieces.evaluator(*splits[0]) is not evaluators[0]


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
    requests = (first, second, first, third, first, second)
    are_known = [is_known(language, split) for language, split in requests]
    assert are_known == [False, False, True, False, True, False]


def test_asks_are_for_pieces_that_are_not_stored(model: Model, make: Callable[..., Pieces]) -> None:
    pieces = make()
    kept = kept_without(model, 1)
    ask = pieces.ask_scores("xx", "leave-one-out")
    assert ask.kind == "scores"
    assert ask.method == "leave-one-out"
    assert ask.forwards == 120
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


def test_a_run_costs_what_was_forecast_and_a_second_one_nothing(
    make: Callable[..., Pieces],
) -> None:
    run_forecast = forecast("transfer", make(), QUICK_OPTIONS)
    steps = list[Progress]()
    missing = missing_pieces("transfer", make(), QUICK_OPTIONS)
    assert run_forecast.seconds is not None
    assert run_forecast.seconds > 0
    assert {ask.kind for ask in missing} == {"scores", "answers"}
    for part in (
        "forwards, about",
        "leave-one-out scores of 2 languages (240)",
        "as timed on dev examples of xx",
    ):
        assert part in run_forecast.sentence
    report = run_experiment("transfer", make(), options=QUICK_OPTIONS, on_progress=steps.append)
    # One pass more an example than heads: the coalition that the others are compared with.
    assert run_forecast.forwards == 2 * 120 + 2 * 3 * 20
    assert report.example_forwards == run_forecast.forwards + 2 * 10
    progress = [step.done for step in steps]
    assert progress == sorted(progress)
    assert progress[-1] == report.example_forwards <= steps[-1].total
    note = "all masks on yy (2 of 2): test answers in yy, 3 heads gone"
    assert any(note in step.note for step in steps)
    pieces_anew = make()
    assert (
        forecast("transfer", pieces_anew, QUICK_OPTIONS).sentence
        == "the report is in the cache already"
    )
    assert run_experiment("transfer", pieces_anew, options=QUICK_OPTIONS) == report
    assert pieces_anew.forwards == 0


def test_a_pace_that_was_timed_serves_later_forecasts(make: Callable[..., Pieces]) -> None:
    paces: dict[tuple[str | None, ...], float] = {}
    first_forecast = forecast("transfer", make(paces=paces), QUICK_OPTIONS)
    assert set(paces) == {(make().task.name, "xx", "dev")}
    assert forecast("transfer", make(paces=paces), QUICK_OPTIONS).seconds == first_forecast.seconds
    paces[make().task.name, "xx", "dev"] *= 2
    slower_forecast = forecast("transfer", make(paces=paces), QUICK_OPTIONS)
    assert slower_forecast.seconds == pytest.approx(2 * (first_forecast.seconds or 0))


def test_ticks_come_while_the_device_is_timed(make: Callable[..., Pieces]) -> None:
    ticks = list[None]()
    pieces = make(tick=lambda: ticks.append(None))
    assert forecast("transfer", pieces, QUICK_OPTIONS).seconds is not None
    assert ticks


def test_pieces_of_one_experiment_serve_another(make: Callable[..., Pieces]) -> None:
    run_experiment("transfer", make(), options=QUICK_OPTIONS)
    pieces = make()
    missing = missing_pieces("targeted", pieces, QUICK_OPTIONS | {"runs": 2})
    assert {(ask.kind, ask.method) for ask in missing} == {
        ("scores", "gradient"),
        ("answers", ""),
    }
    run_experiment("gap", pieces, options=QUICK_OPTIONS)
    assert pieces.forwards == 2 * 2 * 10  # dev answers alone
    assert forecast("gap", make(), QUICK_OPTIONS | {"k": None}).sentence != ""
    transfer_forecast = forecast("transfer", make(), QUICK_OPTIONS | {"source": "xx"})
    assert transfer_forecast.basis == "every piece is in the cache already"


class Stopped(Exception):
    pass


@pytest.mark.parametrize("key", ["targeted", "transfer", "gap"])
def test_an_interrupted_run_goes_on_and_ends_the_same(
    key: str, make: Callable[..., Pieces], model: Model, tmp_path: Path
) -> None:
    options = dict(QUICK_OPTIONS)
    if key == "targeted":
        options["runs"] = 2
    ticks = list[None]()
    uninterrupted = make(store=Store(tmp_path / "whole"), tick=lambda: ticks.append(None))
    expected = run_experiment(key, uninterrupted, options=options)
    forwards_spent = []
    for tick_limit in (3 * len(ticks) // 4, len(ticks) // 2, len(ticks) // 4):
        remaining_ticks = iter(range(tick_limit))

        def tick(remaining_ticks: Iterator[int] = remaining_ticks) -> None:
            if next(remaining_ticks, None) is None:
                raise Stopped

        pieces = make(tick=tick)
        try:
            run_experiment(key, pieces, options=options)
        except Stopped:
            forwards_spent.append(pieces.forwards)
    assert forwards_spent
    report = run_experiment(key, make(), options=options)
    tables = [table.to_json() for table in report.tables]
    assert tables == [table.to_json() for table in expected.tables]
    assert report.notes == expected.notes
    assert report.spec == expected.spec
    assert report.example_forwards < expected.example_forwards


def test_a_torn_report_is_made_anew_of_its_pieces(make: Callable[..., Pieces]) -> None:
    expected = run_experiment("gap", make(), options=QUICK_OPTIONS)
    store = make().store
    assert store is not None
    (stored_report,) = store.reports().results
    path = stored_report.folder / "result.npz"
    path.write_bytes(path.read_bytes()[:200])
    pieces = make()
    assert run_experiment("gap", pieces, options=QUICK_OPTIONS).tables == expected.tables
    assert pieces.forwards == 0
    assert "report skipped" in (stored_report.folder / "log.txt").read_text()
    assert store.reports().problems == ()


def test_whatever_numbers_depend_on_names_the_report(
    make: Callable[..., Pieces], model: Model
) -> None:
    from dataclasses import replace

    from headlab.studies.run import report_spec

    def spec(pieces: Pieces, options: dict[str, Any]) -> str:
        targeted = STUDIES["targeted"]
        return report_spec(targeted, pieces, targeted.resolve(options)).key

    default_key = spec(make(), {})
    assert default_key == spec(make(), {"runs": 10, "method": "shapley"})
    one_language = tiny_task().with_languages(["xx"])
    another_seed = replace(tiny_task(), seed=3)
    changed_keys = [
        spec(make(seed=1), {}),
        spec(make(dev_size=11), {}),
        spec(make(test_size=None), {}),
        spec(make(ablation="mean"), {}),
        spec(make(), {"runs": 3}),
        spec(make(), {"method_options": {"samples": 9}}),
        spec(Pieces(model, one_language, dev_size=10, test_size=20), {}),
        spec(Pieces(model, another_seed, dev_size=10, test_size=20), {}),
    ]
    assert len({default_key, *changed_keys}) == 9


def test_a_report_is_of_the_counterfactuals_that_it_was_made_with(model: Model) -> None:
    from dataclasses import replace

    from headlab.studies.run import report_spec

    def spec(ablation: str, word: str) -> RunSpec:
        def read(*arguments: Any) -> list[Example]:
            examples = tiny_task().read(*arguments)
            return [replace(e, counterfactuals=(f"{word} {e.text}",)) for e in examples]

        task = replace(tiny_task(), read=read)
        pieces = Pieces(model, task, dev_size=10, test_size=20, ablation=ablation)
        targeted = STUDIES["targeted"]
        return report_spec(targeted, pieces, targeted.resolve({}))

    assert spec("counterfactual", "w5").key != spec("counterfactual", "w6").key
    for ablation in ("zero", "mean", "resample"):
        assert spec(ablation, "w5").key == spec(ablation, "w6").key
        assert not spec(ablation, "w5").contrasts


def test_a_method_that_closes_nothing_is_refused_before_others_are_scored(
    make: Callable[..., Pieces],
) -> None:
    pieces = make(ablation="resample")
    options = {"methods": "leave-one-out,gradient", "runs": 2, "points": 5}
    with raises("ablation.method", "gradient", "resample"):
        run_experiment("methods", pieces, options=options)
    assert pieces.forwards == 0


def test_options_left_out_and_defaults_spelled_out_give_one_report(
    make: Callable[..., Pieces],
) -> None:
    from headlab.methods import METHODS
    from headlab.studies.run import report_spec

    iterative = STUDIES["iterative"]
    spelled_out_defaults = {
        "method_options": METHODS["shapley"].recorded(METHODS["shapley"].resolve({})),
        "monte_carlo_options": METHODS["monte-carlo"].resolve({}),
    }
    spaced_orderings = {"orderings": " random, monte-carlo,shapley,gradient,leave-one-out,random,"}

    def key(options: dict[str, Any]) -> str:
        return report_spec(iterative, make(), iterative.resolve(options)).key

    assert key(spelled_out_defaults) == key({})
    assert key(spaced_orderings) == key({})
    assert key(iterative.resolve({})) == key({})
    assert key({"method_options": {"samples": 9}}) != key({})


def test_a_job_may_request_every_ordering() -> None:
    from headlab.methods import ORDERINGS

    assert STUDIES["iterative"].lists["orderings"] == tuple(ORDERINGS)
    defaults = STUDIES["iterative"].resolve({})
    assert defaults["orderings"] == "random,monte-carlo,shapley,gradient,leave-one-out"


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
    assert list(STUDIES) == [*keys, "front", "interactions"]
    for experiment in STUDIES.values():
        module = import_module(f"headlab.studies.{experiment.module}")
        assert callable(module.run)
        assert callable(module.cost)
        # A front of heads that keeps the vocabulary has the options of fronts of earlier versions.
        left_out = {VOCABULARY, "players"} if experiment.key == "front" else set()
        if experiment.key == "interactions":  # of one choice of heads
            left_out = {"heads", "layer", "of"}
        assert experiment.resolve({}).keys() == experiment.options.keys() - left_out


def test_a_study_with_a_job_of_its_own_is_run_and_not_offered() -> None:
    assert study("front").job == "front"
    assert {experiment.job for experiment in offered_experiments().values()} == {"experiment"}
    assert "front" not in offered_experiments()
    with raises("experiment.unknown", "'front'", "headlab front"):
        study_run_by("experiment", "front")
    with raises("experiment.unknown", "'nothing'"):
        study("nothing")


@pytest.mark.parametrize(
    ("key", "options", "refusal"),
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
def test_options_that_do_not_fit_are_refused(
    make: Callable[..., Pieces], key: str, options: dict[str, Any], refusal: tuple[object, ...]
) -> None:
    with raises(*refusal):
        run_experiment(key, make(dev_size=4, test_size=4), options=options)


def test_one_language_is_too_few_to_compare_and_a_seed_is_not_negative(model: Model) -> None:
    pieces_of_one_language = Pieces(model, tiny_task().with_languages(["xx"]))
    with raises("experiment.languages_too_few", 2, 1):
        forecast("transfer", pieces_of_one_language)
    with raises("seed.invalid", 0):
        forecast("gap", Pieces(model, tiny_task(), seed=-1))


def test_the_pace_of_stored_results_is_used(make: Callable[..., Pieces]) -> None:
    make().scores("xx", "gradient")
    run_forecast = forecast("targeted", make(), QUICK_OPTIONS | {"runs": 1})
    assert "gradient at " in run_forecast.basis
    assert "as in the cache's results" in run_forecast.basis
    curve = Ask("curve", "xx", "a curve", 100)
    timed_pace = Pace(make())
    stored_pace = Pace(make())
    answers = Ask("answers", "xx", "some answers", 100)
    assert timed_pace.seconds_a_forward(curve) == timed_pace.seconds_a_forward(answers)
    stored_curve = make().curve("xx", make().scores("xx", "gradient"), 3)
    assert (
        stored_pace.seconds_a_forward(curve) == stored_curve.seconds / stored_curve.example_forwards
    )
    assert stored_pace.basis.endswith("a forward, as in the cache's")


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "3 s"), (89, "89 s"), (1500, "25 min"), (9000, "2.5 h")]
)
def test_durations_are_written_in_a_suitable_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_family(tmp_path_factory.mktemp("model") / "tiny", "bert")


@pytest.fixture
def known_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the tiny task as "tiny", and no other."""
    monkeypatch.setattr("headlab.tasks.registry.TASKS", {"tiny": lambda _: tiny_task()})


def command(folder: Path, cache: Path, *further_arguments: Any) -> list[str]:
    """The words of an `experiment gap` command with these arguments after the usual ones."""
    arguments = ["experiment", "gap", "--task", "tiny", "--languages", "xx"]
    arguments += ["--method", "leave-one-out", "-o", "level=0.9", "--option", "k=2"]
    arguments += ["--size", "16", "--test-size", "24"]
    arguments += ["--model", str(folder), "--cache", str(cache)]
    return arguments + [str(argument) for argument in further_arguments]


@pytest.mark.usefixtures("known_task")
def test_the_command_prints_the_cost_then_the_tables_and_writes_what_is_requested(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_reports: list[tuple[str, Path]] = []

    def note_figures(report: Report, out_folder: Path) -> None:
        drawn_reports.append((report.name, out_folder))

    monkeypatch.setattr("headlab.cli.figures.write_figures", note_figures)
    assert main(command(folder, tmp_path / "cache", "--out", tmp_path / "out")) == 0
    printed, err = capsys.readouterr()
    assert err.startswith("gap: ")
    for word in (
        "forwards, about",
        "leave-one-out scores of 1 language (192)",
        "answers of 1 language (120)",
    ):
        assert word in err
    assert printed.startswith("## What a mask chosen on dev gains there and on test")
    assert "| xx | K lowest | 2 |" in printed
    assert main(command(folder, tmp_path / "cache", "--json")) == 0
    printed_json, err = capsys.readouterr()
    assert err == "gap: the report is in the cache already\n"
    report = Report.from_json(json.loads(printed_json))
    assert report.spec["options"]["method_options"] == {"level": 0.9}
    out_folder = tmp_path / "out"
    file_names = sorted(path.name for path in out_folder.iterdir())
    assert file_names == ["gap-heads.csv", "gap.csv", "report.json"]
    written_report = json.loads((out_folder / "report.json").read_text())
    assert Report.from_json(written_report) == report
    assert (out_folder / "gap.csv").read_text() == report.table("gap").csv()
    assert drawn_reports == [("gap", out_folder)]


def test_the_command_lists_the_experiments_without_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments in (["experiment", "--list"], ["experiment"]):
        assert main(arguments) == 0
        printed = capsys.readouterr().out
        for experiment in offered_experiments().values():
            assert f"{experiment.key}: {experiment.question}" in printed
        assert "--option k=none: heads to remove" in printed
    assert main(["experiment", "--list", "--json"]) == 0
    listed_experiments = json.loads(capsys.readouterr().out)["experiments"]
    assert [experiment["key"] for experiment in listed_experiments] == list(offered_experiments())
    assert listed_experiments[1]["options"]["runs"] == {
        "default": 10,
        "help": "random choices of heads",
        "fits": "a whole number of 1 or more",
    }


@pytest.mark.usefixtures("known_task")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
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
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    sentence: str,
) -> None:
    places = ["--task", "tiny", "--model", str(folder), "--cache", str(tmp_path)]
    assert main(["experiment", *arguments, *places]) == 2
    printed, err = capsys.readouterr()
    assert printed == ""
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("key", offered_experiments())
def test_an_experiment_is_documented_with_its_options_and_defaults(key: str) -> None:
    experiment = STUDIES[key]
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"`{key}`\n"))
    assert f"*{experiment.question}*" in section
    documented_defaults = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 3:
            documented_defaults[cells[0].strip("`")] = cells[1]
    own_options = dict(experiment.options)
    if "method" in own_options:  # described once for all experiments, with its options
        del own_options["method"]
        own_options.pop("method_options", None)
    defaults = {name: f"`{json.dumps(option.default)}`" for name, option in own_options.items()}
    assert documented_defaults == defaults
    assert all(option.help for option in experiment.options.values())
