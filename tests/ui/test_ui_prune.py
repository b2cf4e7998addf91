"""The logic of the Prune page: suggestions, figures as they arrive, and the mask file."""

from __future__ import annotations

import json
import shlex
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from streamlit.testing.v1 import AppTest
from support.expected_errors import expect_error, raises
from support.waiting import wait_until

from headlab.cli.run import build
from headlab.core import (
    ABLATION_CHOICES,
    BEYOND_LIMIT,
    WITHOUT_TOKEN,
    HeadGrid,
    HeadlabError,
    Omissions,
    Stack,
    ablation_title,
)
from headlab.dashboard.frame import LatestValue
from headlab.dashboard.names import plain
from headlab.dashboard.panels.heads.changed_answers import all_changes_command
from headlab.dashboard.panels.masks.history import MaskHistory
from headlab.dashboard.panels.masks.mask_figures import (
    AccuracyQuestion,
    accuracies_for_mask_file,
    accuracy_caption,
    accuracy_table,
    interval_of_difference,
    mean_figure,
    omission_notes,
    progress_caption,
    stand_in_caption,
    stream_figures,
)
from headlab.dashboard.panels.masks.mask_files import (
    mask_file_name,
    take_uploaded_mask,
    with_measured_accuracies,
)
from headlab.dashboard.panels.masks.suggestion import (
    CORRECTION_WORDS,
    MEAN_OF_LANGUAGES,
    Suggestion,
    false_heads_words,
    origin_of_mask,
    pooled_scores,
    removal_warning,
    suggested_heads,
    usable_rules,
)
from headlab.dashboard.widgets import maps_details
from headlab.masks import Mask, mask_from_json
from headlab.masks.compare import accuracy_notes
from headlab.results import HeadScores
from headlab.tasks import read_label_map
from headlab.worker.schemas import Figure

GRID = HeadGrid((Stack("encoder", (3, 3)),))
FINGERPRINT = "f" * 64
IDENTITY = {"name": "a/model", "revision": "r", "fingerprint": FINGERPRINT}
VALUES = np.array([-0.03, -0.02, -0.01, 0.01, 0.02, 0.03])


def scores(language="de", shift=0.0, half_width=0.015):
    values = VALUES + shift
    bounds = {}
    if half_width is not None:
        bounds = {"low": values - half_width, "high": values + half_width}
    return HeadScores(
        GRID, language, "shapley", values, "shapley-top50", "accuracy", 1, 1.0, **bounds
    )


def removed_indices(kept_heads):
    return np.flatnonzero(~kept_heads).tolist()


def final_german_figures(client, accuracy_question, known_figures=None):
    """The figures at the end of a stream for German, by language.

    Args:
        client: A worker's client.
        accuracy_question: The question that the figures answer.
        known_figures: The figures that are known before; the final ones are added to them.
    """
    if known_figures is None:
        known_figures = {}
    return list(stream_figures(client, accuracy_question, ["de"], known_figures))[-1]


def mask(*removed_heads):
    kept_heads = np.ones(GRID.size, bool)
    kept_heads[list(removed_heads)] = False
    return Mask(GRID, kept_heads, IDENTITY, {"rule": "by hand"})


def question(asked_mask=None, label_map=None):
    return AccuracyQuestion.unchecked(
        "a/model", FINGERPRINT, "intents", "dev", asked_mask, "me", label_map
    )


class FakeClient:
    """Streams as the worker does: a first figure, then the final one.

    Attributes:
        log: The language and the number of examples of each figure, in order.
        closed: The languages whose streams have ended.
        broken: The language for which the worker cannot be reached.
    """

    def __init__(self, broken=None):
        self.log = []
        self.closed = []
        self.broken = broken

    def evaluate(self, request):
        comparison = {
            "baseline": 0.6,
            "difference": -0.1,
            "p": 0.5,
            "flipped_right": 1,
            "flipped_wrong": 7,
        }
        try:
            for example_count in (64, request.size):
                self.log.append((request.language, example_count))
                if request.language == self.broken:
                    raise HeadlabError("the worker cannot be reached", code="worker.unreachable")
                yield Figure(
                    language=request.language,
                    n=example_count,
                    total=request.size,
                    accuracy=0.5,
                    low=0.4,
                    high=0.6,
                    done=example_count == request.size,
                    **({} if request.mask is None else comparison),
                )
        finally:
            self.closed.append(request.language)


def test_every_language_has_a_first_figure_before_any_has_its_second():
    client = FakeClient()
    updates = list(stream_figures(client, question(mask(0)), ["de", "th", "fr"], {}))
    assert client.log == [
        ("de", 64),
        ("th", 64),
        ("fr", 64),
        ("de", 512),
        ("th", 512),
        ("fr", 512),
    ]
    assert updates[0] == {}
    assert set(updates[-1]) == {"de", "th", "fr"}
    assert all(row.done for row in updates[-1].values())


def test_a_known_figure_is_not_requested_again():
    client = FakeClient()
    known_figures = {}
    mask_question = question(mask(0))
    final_german_figures(client, mask_question, known_figures)
    later_updates = list(stream_figures(client, mask_question, ["de", "th"], known_figures))
    assert later_updates[0]["de"].done
    assert [name for name, _ in client.log].count("de") == 2
    assert set(later_updates[-1]) == {"de", "th"}


def test_another_mask_split_or_model_is_another_question():
    questions = [
        question(mask(0)),
        question(mask(1)),
        question(None),
        question(mask(0, 1)),
        AccuracyQuestion.unchecked("a/model", FINGERPRINT, "intents", "test", mask(0)),
        AccuracyQuestion.unchecked("b", "e" * 64, "intents", "dev", mask(0)),
    ]
    keys = {accuracy_question.key("de") for accuracy_question in questions}
    assert len(keys) == len(questions)
    assert questions[0].key("de") != questions[0].key("th")


def test_leaving_early_closes_every_stream():
    client = FakeClient()
    stream = stream_figures(client, question(mask(0)), ["de", "th"], {})
    for _ in range(3):
        next(stream)
    stream.close()
    assert sorted(client.closed) == ["de", "th"]


def test_an_unpruned_model_has_no_difference():
    rows = final_german_figures(FakeClient(), question(None))
    assert rows["de"].difference is None
    assert rows["de"].baseline is None
    assert interval_of_difference(rows["de"]) is None
    assert list(accuracy_table(rows, ["de"])) == ["Language", "Accuracy %", "Examples"]


def test_an_error_of_the_worker_is_kept_for_the_page_with_the_earlier_figures():
    live = LatestValue(
        lambda: stream_figures(FakeClient(broken="th"), question(mask(0)), ["de", "th"], {})
    )
    live.wait(99, 5)
    assert live.done
    assert "cannot be reached" in str(live.error)
    assert list(live.value) == ["de"]


def test_reported_16_figures_that_end_early_are_an_error_not_a_table_that_waits_for_ever():
    """Another page of this session may request figures of the same language, which ends these."""

    class Superseded(FakeClient):
        def evaluate(self, request):
            yield next(super().evaluate(request))
            raise HeadlabError("a newer request took its place", code="worker.request_superseded")

    live = LatestValue(lambda: stream_figures(Superseded(), question(mask(0)), ["de"], {}))
    live.wait(99, 5)
    assert live.done
    expect_error(live.error, "worker.request_superseded")
    assert [row.done for row in live.value.values()] == [False]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_reported_16_a_question_that_an_older_one_overtook_is_asked_once_more_while_it_is_wanted(
    is_wanted,
):
    class OvertakenOnce(FakeClient):
        requests = 0

        def evaluate(self, request):
            self.requests += 1
            if self.requests == 1:
                raise HeadlabError(
                    "a newer request took its place", code="worker.request_superseded"
                )
            yield from super().evaluate(request)

    client = OvertakenOnce()
    stream = stream_figures(client, question(mask(0)), ["de"], {}, is_wanted=lambda: is_wanted)
    if is_wanted:
        assert list(stream)[-1]["de"].done
        assert client.requests == 2
    else:
        with raises("worker.request_superseded"):
            list(stream)
        assert client.requests == 1


def test_reading_the_value_does_not_wait_for_a_slow_answer():
    release = threading.Event()

    def slow():
        yield "known before"
        release.wait(120)
        yield "answer"

    live = LatestValue(slow)
    wait_until(lambda: live.value is not None)
    live.wait(2, 0.05)  # for a second value, which does not come
    assert live.value == "known before"
    assert live.done is False
    release.set()
    live.wait(3, 60)
    assert live.value == "answer"
    assert live.done is True
    assert live.error is None


def test_a_stopped_stream_is_closed():
    stream_ended = threading.Event()

    def endless():
        try:
            while True:
                yield 1
        finally:
            stream_ended.set()

    live = LatestValue(endless)
    live.stop()
    assert stream_ended.wait(60)


def figure(language="de", **fields):
    """A final figure with a difference, some of its fields replaced."""
    defaults = {
        "n": 512,
        "total": 512,
        "accuracy": 0.7,
        "done": True,
        "baseline": 0.72,
        "difference": -0.02,
        "low": -0.03,
        "high": -0.01,
        "p": 0.02,
        "flipped_right": 3,
        "flipped_wrong": 13,
    }
    return Figure(language=language, **{**defaults, **fields})


def test_the_table_is_in_points_and_corrects_p_for_several_languages():
    rows = {"de": figure(), "th": figure("th", p=0.04)}
    frame = accuracy_table(rows, ["de", "th"]).set_index("Language")
    assert frame.loc["de", "Difference"] == pytest.approx(-2.0)
    assert frame.loc["de", "Low"] == pytest.approx(-3.0)
    assert frame.loc["de", "High"] == pytest.approx(-1.0)
    assert frame["p (Holm)"].tolist() == pytest.approx([0.04, 0.04])
    assert frame.loc["de", "Now right"] == 3
    assert frame.loc["de", "Now wrong"] == 13
    assert "p (Holm)" not in accuracy_table({"de": figure()}, ["de"])


@pytest.mark.parametrize(
    ("row", "is_pruned", "caption"),
    [
        (figure(), True, "−2.0 [−3.0, −1.0] · 512 of 512 · final"),
        (figure(n=16, done=False), True, "16 of 512 · so far"),
        (figure(n=128, done=False, p=None), True, "−2.0 [−3.0, −1.0] · 128 of 512 · so far"),
        (
            figure(n=1000, total=1000, difference=-0.0001),
            True,
            "±0.0 [−3.0, −1.0] · 1,000 of 1,000 · final",
        ),
        (figure(n=40, total=40), True, "−2.0 [−3.0, −1.0] · 40 of 40 · final"),
        (figure(difference=None), False, "unpruned · 512 of 512 · final"),
    ],
)
def test_a_caption_has_interval_and_examples_and_hides_a_difference_on_few(row, is_pruned, caption):
    assert accuracy_caption(row, is_pruned) == caption


def test_a_row_that_is_not_final_has_no_test_and_no_difference_on_few():
    rows = {
        "de": figure(n=16, done=False),
        "th": figure("th", n=256, done=False),
    }
    frame = accuracy_table(rows, ["de", "th"]).set_index("Language")
    assert frame["Difference"].isna().tolist() == [True, False]
    assert frame["p"].isna().all()
    assert "p (Holm)" not in frame or frame["p (Holm)"].isna().all()
    assert frame["Examples"].tolist() == ["16 of 512 …", "256 of 512 …"]
    early_mean = mean_figure(rows)
    assert early_mean.difference is None
    assert early_mean.done is False
    assert early_mean.n == 0
    assert early_mean.total == 2


def test_the_mean_of_the_ends_is_no_narrower_than_the_interval_of_the_mean(rng):
    """For languages that depend on each other in any way, with intervals of normal errors."""
    for _ in range(50):
        mixing = rng.normal(size=(4, 4))
        covariance = mixing @ mixing.T
        errors = np.sqrt(np.diag(covariance))
        shares = np.full(4, 0.25)
        half_width_of_mean = np.sqrt(shares @ covariance @ shares)
        rows = {}
        for number, error in enumerate(errors):
            rows[str(number)] = figure(low=-0.02 - error, high=-0.02 + error)
        mean = mean_figure(rows)
        assert (mean.high - mean.low) / 2 >= half_width_of_mean * (1 - 1e-9)


def test_a_language_without_a_figure_is_a_row_that_waits():
    frame = accuracy_table({"de": figure()}, ["de", "th"])
    assert frame["Examples"].tolist() == ["512", "…"]
    assert accuracy_table({}, ["de"])["Examples"].tolist() == ["…"]


def test_another_label_map_is_another_question_and_is_noted_with_the_figures():
    swapped_classes = {"a": "LABEL_1", "b": "LABEL_0"}
    assert question(label_map=swapped_classes).key("de") != question().key("de")

    class Noting(FakeClient):
        def evaluate(self, request):
            for row in super().evaluate(request):
                yield row.model_copy(update={"note": f"Label map: {request.label_map}"})

    question_with_map = question(mask(0), swapped_classes)
    rows = final_german_figures(Noting(), question_with_map)
    assert rows["de"].note == f"Label map: {swapped_classes}"
    accuracies = accuracies_for_mask_file(rows, question())
    assert accuracies["languages"]["de"]["note"] == f"Label map: {swapped_classes}"
    accuracies = accuracies_for_mask_file({"de": figure()}, question())
    assert "note" not in accuracies["languages"]["de"]


def test_means_and_progress():
    rows = {
        "de": figure(),
        "th": figure("th", accuracy=0.5, difference=0.04),
    }
    mean = mean_figure(rows)
    assert (mean.accuracy, mean.difference) == pytest.approx((0.6, 0.01))
    caption = accuracy_caption(mean, True, "languages")
    assert caption == "+1.0 [−3.0, −1.0] · 2 of 2 languages · final"
    early_rows = {
        "de": figure(n=16, done=False),
        "th": figure("th", n=256, done=False),
    }
    caption = accuracy_caption(mean_figure(early_rows), False, "languages")
    assert caption == "unpruned · none of 2 languages final so far"
    languages = ["de", "th"]
    two_heads_off = question(mask(0, 1))
    caption = progress_caption(rows, languages, two_heads_off)
    assert caption == "2 heads off: final, 512 dev examples a language."
    assert "1 of 2 languages" in progress_caption({"de": figure()}, languages, two_heads_off)
    rows_of_other_sizes = {"de": figure(n=400), "th": figure()}
    assert "400–512" in progress_caption(rows_of_other_sizes, languages, two_heads_off)
    first_row = {"de": figure(n=64, done=False)}
    caption = progress_caption(first_row, ["de"], question())
    assert caption == "All heads on: 64 of 512 dev examples so far …"
    caption = progress_caption({}, languages, question(mask(3)))
    assert caption == "1 head off: waiting for the first dev examples …"
    several_answers_an_example = {"de": figure(n=432, total=13_824, done=False)}
    caption = progress_caption(several_answers_an_example, ["de"], question())
    assert caption == "All heads on: 432 of 13,824 dev answers so far …"


def test_the_mean_of_scores_averages_values_and_bounds():
    shifted_scores = {"de": scores(), "th": scores("th", shift=0.02)}
    mean_scores = pooled_scores(shifted_scores, MEAN_OF_LANGUAGES)
    assert mean_scores.language == MEAN_OF_LANGUAGES
    assert mean_scores.values == pytest.approx(VALUES + 0.01)
    assert mean_scores.high == pytest.approx(VALUES + 0.01 + 0.015)
    scores_by_language = {"de": scores(), "th": scores("th")}
    assert pooled_scores(scores_by_language, "th").language == "th"
    assert pooled_scores({}, MEAN_OF_LANGUAGES) is None
    one_without_bounds = {"de": scores(), "th": scores("th", half_width=None)}
    assert pooled_scores(one_without_bounds, MEAN_OF_LANGUAGES).high is None


def test_suggestions_follow_the_rule_to_the_head():
    harmful = Suggestion("harmful")
    bottom = Suggestion("bottom", k=3)
    threshold = Suggestion("threshold", threshold=-0.015)
    assert removed_indices(suggested_heads(scores(), harmful)) == [0, 1]
    assert removed_indices(suggested_heads(scores(), bottom)) == [0, 1, 2]
    assert removed_indices(suggested_heads(scores(), threshold)) == [0, 1]
    assert usable_rules(scores(half_width=None)) == ["bottom", "threshold"]


def test_a_correction_leaves_the_heads_that_survive_it_and_says_how_many_to_expect_falsely():
    p_values = np.array([0.005, 0.016, 0.6, 0.5, 0.5, 0.001])
    tested_scores = replace(scores(half_width=0.005), p_values=p_values)
    assert list(CORRECTION_WORDS) == ["raw", "holm", "bh"]
    raw = Suggestion("harmful", correction="raw")
    by_holm = Suggestion("harmful", correction="holm")
    by_bh = Suggestion("harmful", correction="bh")
    assert removed_indices(suggested_heads(tested_scores, raw)) == [0, 1, 2]
    assert removed_indices(suggested_heads(tested_scores, by_holm)) == [0]
    assert removed_indices(suggested_heads(tested_scores, by_bh)) == [0, 1]
    assert "at most about 0.15" in false_heads_words(tested_scores, raw, 2)
    assert "at most 5\u00a0%" in false_heads_words(tested_scores, by_holm, 2)
    assert "0.1 of 2" in false_heads_words(tested_scores, by_bh, 2)
    assert false_heads_words(tested_scores, by_holm, 0) == ""
    assert false_heads_words(tested_scores, by_bh, 0) == ""
    with_equal_p = replace(tested_scores, p_values=np.full(6, 0.01))
    caution = false_heads_words(with_equal_p, by_holm, 0)
    assert "The smallest p here is 0.01: over 6 tests" in caution
    at_full_level = replace(tested_scores, level=1.0)
    assert false_heads_words(at_full_level, Suggestion("harmful"), 2) == ""
    of_mean = replace(tested_scores, language=MEAN_OF_LANGUAGES)
    assert "mean" in false_heads_words(of_mean, Suggestion("harmful"), 2)
    assert false_heads_words(tested_scores, Suggestion("bottom", k=2), 2) == ""
    assert origin_of_mask(tested_scores, by_holm, ["de"])["correction"] == "holm"
    assert "correction" not in origin_of_mask(tested_scores, Suggestion("harmful"), ["de"])


def test_a_suggestion_from_the_mean_says_which_languages():
    mean_scores = pooled_scores({"de": scores(), "th": scores("th")}, MEAN_OF_LANGUAGES)
    origin = origin_of_mask(mean_scores, Suggestion("bottom", k=2), ["de", "th"])
    assert origin["rule"] == "bottom"
    assert origin["k"] == 2
    assert origin["languages"] == ["de", "th"]
    assert origin["method"] == "shapley"


@pytest.mark.parametrize(
    ("removed_count", "expected_text"), [(0, None), (3, None), (4, "4 of 6"), (6, "all 6")]
)
def test_a_warning_where_most_heads_would_be_off(removed_count, expected_text):
    sentence = removal_warning(mask(*range(removed_count)).kept)
    assert (sentence is None) == (expected_text is None)
    assert expected_text is None or expected_text in sentence


SOME_OMISSIONS = Omissions(512, 3, 128, {WITHOUT_TOKEN: 2, BEYOND_LIMIT: 190})


class Omitting(FakeClient):
    """Says what of the examples was cut or has no answer, which an older worker does not do."""

    def evaluate(self, request):
        for row in super().evaluate(request):
            yield row.model_copy(update={"omissions": SOME_OMISSIONS})


def test_reported_06_words_left_out_stand_beside_the_figures_and_in_the_mask_file():
    known_figures = {}
    mask_question = question(mask(1))
    rows = final_german_figures(Omitting(), mask_question, known_figures)
    assert rows["de"].omissions == SOME_OMISSIONS
    assert omission_notes(rows) == [f"German (de): {SOME_OMISSIONS.sentence}."]
    early_row = rows["de"].model_copy(update={"done": False})
    assert omission_notes({"de": early_row}) == []
    mask_with_figures = with_measured_accuracies(mask(1), mask_question, known_figures, ["de"])
    mask_json = json.loads(mask_with_figures.to_text())
    stored_figure = mask_json["chosen"]["evaluated"]["dev"]["languages"]["de"]
    assert stored_figure["words_left_out"] == {WITHOUT_TOKEN: 2, BEYOND_LIMIT: 190}
    assert stored_figure["examples_cut"] == 3
    assert stored_figure["token_limit"] == 128
    assert "omissions" not in stored_figure
    mask_read = mask_from_json(mask_json, "file")
    assert accuracy_notes({"": mask_read}) == [f"de: {SOME_OMISSIONS.sentence}."]
    rows_of_older_worker = final_german_figures(FakeClient(), mask_question)
    assert omission_notes(rows_of_older_worker) == []
    assert rows_of_older_worker["de"].omissions is None


MEAN_CHOICE = {"rule": "bottom", "ablation": "mean"}
COMBINED_CHOICE = {"rule": "combined: and", "ablation": "mixed"}


@pytest.mark.parametrize(
    ("chosen", "asked_for", "measured", "caption"),
    [
        ({"rule": "by hand"}, None, "zero", ""),
        ({"rule": "bottom", "score": {"ablation": "zero"}}, None, "zero", ""),
        (
            MEAN_CHOICE,
            None,
            "mean",
            "What is off gives its mean output, as when the mask was chosen.",
        ),
        (
            MEAN_CHOICE,
            "zero",
            "zero",
            "What is off gives zeros; the mask was chosen under mean ablation.",
        ),
        (
            {"score": {"ablation": "streaming:4,64"}},
            "zero",
            "zero",
            "What is off gives zeros; the mask was chosen under streaming (first 4, last 64 tokens) ablation.",
        ),
        (
            COMBINED_CHOICE,
            None,
            "zero",
            "What is off gives zeros; the mask combines some chosen under several ablations.",
        ),
    ],
)
def test_figures_are_by_the_ablation_of_the_mask_or_the_page_says_that_they_are_not(
    chosen, asked_for, measured, caption
):
    mask_question = AccuracyQuestion.unchecked(
        "a/model",
        FINGERPRINT,
        "intents",
        "dev",
        replace(mask(1), chosen=chosen),
        ablation=asked_for,
    )
    assert mask_question.in_language("de").model_dump(mode="json")["ablation"] == measured
    assert mask_question.on_split("test").ablation == measured
    assert stand_in_caption(mask_question) == caption


@pytest.mark.parametrize("name", [name for name in ABLATION_CHOICES if name != "zero"])
def test_figures_of_each_ablation_are_told_apart_and_stored_under_their_own(name):
    chosen_mask = replace(mask(1), chosen={"rule": "bottom", "ablation": name})
    known_figures = {}
    own_question = question(chosen_mask)
    zero_question = own_question.model_copy(update={"ablation": "zero"})
    final_german_figures(FakeClient(), own_question, known_figures)
    assert zero_question.key("de") not in known_figures
    with_figures = with_measured_accuracies(chosen_mask, own_question, known_figures, ["de"])
    assert with_figures.evaluated["dev"]["ablation"] == name
    unmeasured = with_measured_accuracies(chosen_mask, zero_question, known_figures, ["de"])
    assert not unmeasured.evaluated
    final_german_figures(FakeClient(), zero_question, known_figures)
    by_zero = with_measured_accuracies(chosen_mask, zero_question, known_figures, ["de"])
    assert by_zero.evaluated["dev"]["ablation"] == "zero"
    [note] = accuracy_notes({"": by_zero})
    assert note == (
        f"dev: measured with zero ablation (what is removed gives zeros), and the heads were "
        f"chosen under {ablation_title(name)} ablation."
    )


def test_the_command_for_all_changed_answers_measures_what_the_page_does():
    mean_mask = replace(mask(1), chosen=MEAN_CHOICE)
    assert "--ablation" not in all_changes_command(question(mean_mask), "de")
    zero_question = question(mean_mask).model_copy(update={"ablation": "zero"})
    assert "--ablation zero" in all_changes_command(zero_question, "de")
    mixed_question = question(replace(mask(1), chosen=COMBINED_CHOICE))
    assert "--ablation zero" in all_changes_command(mixed_question, "de")


def test_a_person_chooses_whether_a_mask_is_measured_under_its_own_ablation_or_zero():
    def page():
        from dataclasses import replace

        import streamlit as st
        from test_ui_prune import MEAN_CHOICE, mask

        from headlab.dashboard.panels.masks.accuracy import pick_stand_in

        chosen = MEAN_CHOICE if st.checkbox("of means", value=True) else {}
        st.text(pick_stand_in(replace(mask(1), chosen=chosen)))

    app = AppTest.from_function(page, default_timeout=30).run()
    assert not app.exception
    assert app.radio[0].options == ["its mean output", "zeros"]
    assert app.text[0].value == "mean"
    app.radio[0].set_value("zero").run()
    assert app.text[0].value == "zero"
    app.checkbox[0].uncheck().run()
    assert not app.radio
    assert app.text[0].value == "zero"


def test_the_mean_of_scores_suggests_a_mask_that_knows_its_ablation():
    scores_by_language = {
        name: replace(scores(name), spec=replace(scores(name).spec, ablation="mean"))
        for name in ("de", "th")
    }
    mean = pooled_scores(scores_by_language, MEAN_OF_LANGUAGES)
    origin = origin_of_mask(mean, Suggestion("bottom", k=1), ["de", "th"])
    assert replace(mask(1), chosen=origin).ablation == "mean"
    assert replace(mask(1), chosen=origin).of_means


def test_reported_06_the_page_says_how_many_words_are_left_out():
    def page():
        import streamlit as st
        from test_ui_prune import Omitting, mask, question

        from headlab.dashboard.frame import LatestValue
        from headlab.dashboard.panels.masks.accuracy import FigurePlaces, draw_arriving_figures
        from headlab.dashboard.panels.masks.mask_figures import stream_figures

        page_question = question(mask(1))
        live = LatestValue(lambda: stream_figures(Omitting(), page_question, ["de"], {}))
        live.wait(99, 60)  # the stream ends earlier
        places = FigurePlaces(*(st.container() for _ in range(4)))
        draw_arriving_figures(places, live, ["de"], page_question, "de")

    app = AppTest.from_function(page, default_timeout=30)
    app.run()
    assert not app.exception
    assert any(plain(SOME_OMISSIONS.sentence) in caption.value for caption in app.caption)


def test_reported_06_the_caption_of_the_maps_says_it_too():
    scores_with_omissions = replace(scores(), omissions=SOME_OMISSIONS)
    caption = maps_details({"de": scores_with_omissions})
    assert plain(f"de: {SOME_OMISSIONS.sentence}.") in caption
    assert "not counted" not in maps_details({"de": scores()})


@pytest.mark.parametrize("field", ["examples_cut", "words_left_out", "token_limit"])
def test_reported_06_a_mask_with_counts_that_are_no_numbers_is_refused(field):
    known_figures = {}
    mask_question = question(mask(1))
    final_german_figures(Omitting(), mask_question, known_figures)
    mask_with_figures = with_measured_accuracies(mask(1), mask_question, known_figures, ["de"])
    mask_json = json.loads(mask_with_figures.to_text())
    stored_figure = mask_json["chosen"]["evaluated"]["dev"]["languages"]["de"]
    stored_figure[field] = {"a": -1}
    with raises("mask.field_invalid"):
        mask_from_json(mask_json, "file")


def test_a_mask_survives_export_and_import_with_its_accuracies():
    known_figures = {}
    mask_question = question(mask(1, 4))
    final_german_figures(FakeClient(), mask_question, known_figures)
    mask_with_figures = with_measured_accuracies(
        mask(1, 4), mask_question, known_figures, ["de", "th"]
    )
    text = mask_with_figures.to_text()
    evaluated_on_dev = json.loads(text)["chosen"]["evaluated"]["dev"]
    assert evaluated_on_dev["task"] == "intents"
    assert evaluated_on_dev["size"] == 512
    assert list(evaluated_on_dev["languages"]) == ["de"]
    assert evaluated_on_dev["languages"]["de"]["accuracy"] == 0.5
    history = MaskHistory(GRID)
    take_uploaded_mask(text.encode(), "mask.json", history, FINGERPRINT)
    assert removed_indices(history.mask.kept) == [1, 4]
    assert history.mask.chosen == {"rule": "by hand", "imported": "mask.json"}


def broken_masks():
    """Files that cannot be taken as a mask, by what is wrong with them."""
    valid_mask = with_measured_accuracies(
        mask(1),
        question(mask(1)),
        {},
        [],
    )
    valid_file = json.loads(valid_mask.to_text())
    other_grid = HeadGrid((Stack("encoder", (3, 4)),))
    mask_of_other_grid = Mask(other_grid, np.ones(other_grid.size, bool), IDENTITY)
    neurons = Stack("encoder-neurons", (2, 2), ((0, 1, 1), (1, 0, 0)))
    players = HeadGrid((*GRID.stacks, neurons))
    mask_of_players = Mask(players, np.ones(players.size, bool), IDENTITY)
    other_model = {**IDENTITY, "fingerprint": "e" * 64}
    kept_heads_with_2 = {"encoder": [[1, 1, 2], [1, 1, 1]]}
    return {
        "not json": b"{",
        "binary": b"\xff\x00\x80",
        "a list": b"[]",
        "no mask": b"{}",
        "another shape": json.dumps(mask_of_other_grid.to_json()).encode(),
        "other players": json.dumps(mask_of_players.to_json()).encode(),
        "another model": json.dumps(valid_file | {"model": other_model}).encode(),
        "a later version": json.dumps(valid_file | {"version": 99}).encode(),
        "a wrong entry": json.dumps(valid_file | {"kept": kept_heads_with_2}).encode(),
    }


@pytest.mark.parametrize(
    ("flaw", "code"),
    [
        ("not json", "json.invalid"),
        ("binary", "json.invalid"),
        ("a list", "mask.not_a_mask"),
        ("no mask", "mask.not_a_mask"),
        ("another shape", "mask.other_grid"),
        ("other players", "mask.other_players"),
        ("another model", "mask.other_model"),
        ("a later version", "mask.version_newer"),
        ("a wrong entry", "mask.kept_not_binary"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_and_nothing_is_lost(flaw, code):
    history = MaskHistory(GRID)
    history.set_mask(mask(2).kept, {})
    with raises(code):
        take_uploaded_mask(broken_masks()[flaw], "their.json", history, FINGERPRINT)
    assert removed_indices(history.mask.kept) == [2]
    assert len(history.masks) == 2
    assert history.stamp == 1


def test_reported_20_the_command_for_all_changed_answers_is_complete():
    label_map = {"a, b": "x=1", "c": "it's"}
    question_on_test = question(mask(0, 3), label_map).on_split("test")
    command_words = shlex.split(all_changes_command(question_on_test, "de"))
    evaluate = typer.main.get_command(build()).commands["evaluate"]
    arguments = evaluate.make_context("evaluate", command_words[2:]).params
    assert read_label_map(arguments["label_map"]) == question_on_test.label_map
    assert arguments["model"] == "a/model"
    assert arguments["task"] == "intents"
    assert arguments["languages"] == "de"
    assert arguments["split"] == "test"
    assert arguments["mask"] == Path(mask_file_name(question_on_test.mask, "a/model"))
    assert arguments["size"] == 1000
    assert arguments["changes"] == Path("changes-de-test.csv")
