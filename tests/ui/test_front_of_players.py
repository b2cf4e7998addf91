"""The tab *Find a smaller model* for other players than heads: its form, link, fronts and masks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from support import fuzzing
from support.app_pages import page_text, run_page
from support.expected_errors import raises
from support.fake_client import FakeClient, job_row
from support.page_actions import press
from support.submitted_jobs import submitted_jobs
from support.synthetic_fronts import (
    FINGERPRINT,
    GRID,
    GRIDS_OF_PLAYERS,
    LANGUAGES,
    LOADED_MODEL,
    POINTS,
    keep_front,
    keep_scores_of_players,
)

from headlab.core import HEADS, HeadGrid, Report, players_phrase
from headlab.dashboard.names import PRUNE_TABS, front_params
from headlab.dashboard.pages.prune import pinned
from headlab.dashboard.pages.prune.front_growth import growing_chart
from headlab.dashboard.pages.prune.front_question import link_text, values_of_link
from headlab.dashboard.pages.prune.pinned import pinned_lines, take_point
from headlab.dashboard.pages.prune.point_words import HEADS_KEPT, WholeModel, cost_title, hover_text
from headlab.dashboard.pages.prune.stored_fronts import (
    front_dots,
    front_label,
    matching_fronts,
    question_words,
    read_front,
)
from headlab.dashboard.panels.masks import MaskHistory
from headlab.dashboard.panels.stored.stored_reports import setting_words
from headlab.masks import mask_from_json
from headlab.results import Result, Store
from headlab.studies.front_so_far import FrontSoFar, LanguageSoFar, ModelSoFar
from headlab.worker.schemas import Figure

pytestmark = pytest.mark.usefixtures("native_buttons")

NEURONS = "neurons:2"
LAYERS = "layers"
JOINT = "heads,layers"
NOUNS = {NEURONS: "groups of neurons", LAYERS: "layers", JOINT: "players"}


class Worker(FakeClient):
    """A worker that also loads a model and evaluates masks."""

    def models(self) -> Any:
        (card,) = super().models()
        return [card.model_copy(update={"fingerprint": FINGERPRINT})]

    def load_model(self, name: str) -> Any:
        return LOADED_MODEL

    def evaluate(self, request: Any) -> Iterator[Figure]:
        compared = {"baseline": 0.8, "difference": 0.0, "p": 1.0}
        compared |= {"flipped_right": 0, "flipped_wrong": 0}
        yield Figure(
            language=request.language,
            n=request.size,
            total=request.size,
            accuracy=0.8,
            low=0.7,
            high=0.9,
            done=True,
            **({} if request.mask is None else compared),
        )


@pytest.fixture
def client() -> Worker:
    return Worker()


def run(players: str, **query: Any) -> AppTest:
    """The tab, opened by a link to these players."""
    query = {"tool": PRUNE_TABS[1], "langs": list(LANGUAGES), "method": "shapley"} | query
    return run_page("prune", players=players, **query)


def stored_front(cache: Path, players: str = HEADS, **options: Any) -> Result[Report]:
    """A front that is kept in a cache folder."""
    given = {} if players == HEADS else {"players": players}
    key = keep_front(cache, **given, **options)
    return next(result for result in Store(cache).reports(None).results if result.key == key)


@pytest.mark.parametrize(("players", "noun"), NOUNS.items())
def test_the_form_asks_for_these_players_and_starts_their_front(
    worker: FakeClient, cache: Path, players: str, noun: str
) -> None:
    keep_scores_of_players(cache, players)
    app = run(players)
    assert not app.exception
    text = page_text(app)
    subject = {NEURONS: "Groups of neurons", LAYERS: "Layers", JOINT: "Heads and layers"}
    assert f"{subject[players]} are removed in several orders" in text
    no_front = f"No front of this model and task with {players_phrase(players)} is in the cache yet"
    assert no_front in text
    assert any(f"--players {players}" in block.value for block in app.code)
    question = app.radio(key="front-question")
    assert question.options[1] == f"Best model with k {noun}"
    question.set_value("Best model with k heads").run()
    count = app.number_input(key="front-heads")
    assert (count.label, count.value, count.max) == (f"k, {noun} to keep", 4, 6)
    assert count.min == int("layers" in players)
    press(app, "front-start")
    params = submitted_jobs(worker)[-1].params
    assert params["options"] == {
        "orders": "mean,weakest,cost",
        "points": 7,
        "within": None,
        "heads": 4,
        "by": "bound",
        "players": players,
    }


def test_a_form_of_heads_names_no_players(worker: FakeClient, cache: Path) -> None:
    keep_scores_of_players(cache, NEURONS)
    app = run(HEADS)
    assert "No front of this model and task is in the cache yet." in page_text(app)
    assert not any("--players" in block.value for block in app.code)
    press(app, "front-start")
    assert "players" not in submitted_jobs(worker)[-1].params["options"]


def test_a_form_that_was_filled_in_for_heads_fits_fewer_players(
    worker: FakeClient, cache: Path
) -> None:
    keep_scores_of_players(cache, JOINT)
    app = run(HEADS, ask="heads 0")
    assert app.number_input(key="front-heads").value == 0
    app.selectbox(key="players").set_value(JOINT).run()
    assert not app.exception
    assert app.number_input(key="front-heads").value >= 1
    press(app, "front-start")
    options = submitted_jobs(worker)[-1].params["options"]
    assert options["players"] == JOINT
    assert options["heads"] >= 1


def test_a_method_that_cannot_see_the_players_starts_nothing(
    worker: FakeClient, cache: Path
) -> None:
    keep_scores_of_players(cache, NEURONS)
    app = run(NEURONS, method="confidence")
    assert app.button(key="front-start").disabled
    assert "confidence scores heads only" in page_text(app)


@pytest.mark.parametrize(("players", "noun"), NOUNS.items())
def test_a_stored_front_is_shown_among_its_players_alone_and_in_their_noun(
    worker: FakeClient, cache: Path, players: str, noun: str
) -> None:
    keep_scores_of_players(cache, players)
    of_heads = stored_front(cache, within=1.0)
    of_players = stored_front(cache, players, within=1.0)
    app = run(players)
    assert not app.exception
    text = page_text(app)
    assert f"4 of 6 {noun} kept" in text
    assert "heads kept" not in text
    assert f"optimistic estimates. {noun}" not in text
    assert app.radio(key="front-cost").options[-1] == f"{noun} kept"
    assert app.query_params["front"] == of_players.key[:12]
    assert "4 of 6 heads kept" in page_text(run(HEADS))
    # A link to a front of heads says where it is.
    linked = page_text(run(players, **front_params(of_heads.key)))
    assert "The link asks for a front of heads: choose these under Players." in linked
    assert f"4 of 6 {noun} kept" in linked


def test_fronts_of_other_players_leave_the_link_when_there_is_none_of_those_chosen(
    worker: FakeClient, cache: Path
) -> None:
    keep_scores_of_players(cache, NEURONS)
    key = stored_front(cache).key
    app = run(HEADS, **front_params(key), point="weakest-4")
    assert app.query_params["front"] == key[:12]
    app.selectbox(key="players").set_value(NEURONS).run()
    text = page_text(app)
    assert "No front of this model and task with neurons in 2 groups" in text
    assert "The link asks for" not in text
    assert "front" not in app.query_params
    assert "point" not in app.query_params


def test_a_model_of_a_front_becomes_the_switches_of_its_players(
    worker: FakeClient, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_scores_of_players(cache, NEURONS)
    result = stored_front(cache, NEURONS, within=1.0)
    app = run(NEURONS, **front_params(result.key), point="weakest-4")
    press(app, "front-put")
    assert "4 groups of neurons off: final" in page_text(app)
    assert app.query_params["players"] == NEURONS
    front = read_front(result, GRIDS_OF_PLAYERS[NEURONS])
    history = MaskHistory(front.grid)
    monkeypatch.setattr(pinned.st, "session_state", {})
    take_point(front, history, "weakest", 4)
    mask = mask_from_json(json.loads(json.dumps(history.mask.to_json())))
    assert history.mask.to_json()["version"] == 3
    assert mask.grid == GRIDS_OF_PLAYERS[NEURONS]
    assert [tuple(player) for player in mask.removed] == [
        ("encoder-neurons", 0, 0),
        ("encoder-neurons", 0, 1),
        ("encoder-neurons", 1, 1),
        ("encoder-neurons", 2, 0),
    ]


def test_a_front_is_never_read_as_one_of_other_players(cache: Path) -> None:
    fronts = {players: stored_front(cache, players) for players in (HEADS, *NOUNS)}
    grids = {HEADS: GRID, **GRIDS_OF_PLAYERS}
    for of_players, result in fronts.items():
        results = list(fronts.values())
        assert matching_fronts(results, FINGERPRINT, "intents", LANGUAGES, of_players) == [result]
        for players, grid in grids.items():
            if players == of_players:
                assert read_front(result, grid).points
                continue
            with raises("front.other_players", of_players):
                read_front(result, grid)
    stacks = GRIDS_OF_PLAYERS[NEURONS].stacks
    other_members = tuple(layer[::-1] for layer in stacks[0].members or ())
    other_groups = HeadGrid((type(stacks[0])(stacks[0].name, stacks[0].heads, other_members),))
    with raises("front.other_players", NEURONS):
        read_front(fronts[NEURONS], other_groups)


def test_masks_of_fronts_are_those_of_the_players(worker: FakeClient, cache: Path) -> None:
    keep_scores_of_players(cache, NEURONS)
    stored_front(cache, within=1.0)
    result = stored_front(cache, NEURONS, within=1.0)
    run(NEURONS).switch_page("pages/masks.py")
    app = run_page("masks", players=NEURONS, langs=list(LANGUAGES), method="shapley")
    assert not app.exception
    names = [name for name in app.selectbox(key="masks-a").options if name.startswith("Front")]
    assert [name[-7:-1] for name in names] == [result.key[:6]]
    assert "neurons in 2 groups" in names[0]
    assert setting_words({"players": "wheels", "k": 2}) == ["players wheels", "k 2"]


def test_the_overview_says_what_a_front_of_players_found(worker: FakeClient, cache: Path) -> None:
    keep_scores_of_players(cache, NEURONS)
    stored_front(cache, within=2.0)
    stored_front(cache, NEURONS, within=1.0)
    link = {"langs": list(LANGUAGES), "method": "shapley"}
    text = page_text(run_page("overview", players=NEURONS, **link))
    assert "2 of 6 groups of neurons can go" in text
    assert "groups of neurons ordered by" in text
    assert "heads can go" not in text
    assert "2 of 6 heads can go" in page_text(run_page("overview", **link))


def test_labels_and_questions_say_the_players(cache: Path) -> None:
    label = front_label(stored_front(cache, NEURONS, within=1.0))
    assert label.startswith("within 1 point by the lower bound · neurons in 2 groups · de, th · sh")
    assert front_label(stored_front(cache, within=1.0)).startswith("within 1 point by the lower b")
    assert "heads" not in front_label(stored_front(cache, within=1.0))
    assert question_words({"heads": 3, "players": NEURONS}) == "best with 3 groups of neurons"
    assert question_words({"heads": 1, "players": LAYERS}) == "best with 1 layer"
    assert question_words({"heads": 1}) == "best with 1 head"
    assert question_words({"heads": 2, "players": "wheels"}) == "best with 2 players"


def test_a_model_is_told_in_its_players(cache: Path) -> None:
    front = read_front(stored_front(cache, NEURONS, within=1.0), GRIDS_OF_PLAYERS[NEURONS])
    whole = WholeModel(6, 2_000_000, 4, "groups of neurons")
    assert "4 of 6 groups of neurons kept" in hover_text(front.points[1], whole)
    assert cost_title(HEADS_KEPT, whole) == "groups of neurons kept, of 6"
    assert "which chose the groups of neurons" in pinned_lines(front.points[1], whole)[-1]
    assert (
        "4 of 6 groups of neurons kept"
        in front_dots(front, HEADS_KEPT, "weakest language")[1].words
    )


def test_a_model_in_one_language_is_told_once() -> None:
    point = POINTS[4]
    one = type(point)(
        **{
            **point.__dict__,
            **{
                name: getattr(point, name)[:1]
                for name in ("languages", "accuracy", "difference", "low", "high", "bound")
            },
        }
    )
    text = "\n".join(pinned_lines(one, WholeModel(6)))
    assert "German (de): 79.9" in text
    assert "eakest language" not in text
    assert "Mean of" not in text
    assert text.endswith("On dev, which chose the heads: optimistic.")


def test_a_growing_front_says_its_players(worker: FakeClient, cache: Path) -> None:
    keep_scores_of_players(cache, NEURONS)
    params = {
        "model": "e5-small-intents",
        "task": "intents",
        "languages": list(LANGUAGES),
        "method": "shapley",
        "experiment": "front",
        "options": {"heads": 3, "points": 3, "orders": "mean", "players": NEURONS},
        "dev_size": 512,
    }
    worker.rows.append(job_row(3, "running", kind="front", params=params, note="order mean"))
    whole = (LanguageSoFar("de", 512, 512, 0.9, 0.0), LanguageSoFar("th", 512, 512, 0.8, 0.0))
    part = (LanguageSoFar("de", 512, 512, 0.875, -0.025),)
    worker.front = FrontSoFar(
        LANGUAGES, 3, (ModelSoFar("mean", 0, 6, None, whole), ModelSoFar("mean", 2, 4, None, part))
    )
    text = page_text(run(NEURONS))
    assert "Front best with 3 groups of neurons, German (de) and Thai (th): being computed" in text
    assert "being computed" not in page_text(run(HEADS))
    chart = growing_chart(worker.front, WholeModel(6, noun="groups of neurons"))
    assert chart.x.title == "groups of neurons kept, of 6"
    assert "4 of 6 groups of neurons kept" in chart.series[0].texts[1]


def test_links_of_players_are_read_back_or_refused(worker: FakeClient, cache: Path) -> None:
    assert values_of_link("heads 1", 6, fewest=1)["heads"] == 1
    with raises("front.link_unreadable", "from 1 to 6"):
        values_of_link("heads 0", 6, fewest=1)
    rng = random.Random(5)
    texts = (b"within 2 by estimate orders mean-own points 9", b"heads 3", b"heads 0 points 2")
    for players in NOUNS:
        keep_scores_of_players(cache, players)
    for number in range(9):
        text = fuzzing.text_of(fuzzing.spoil(rng, texts))[:400].replace("\0", "")
        app = run(list(NOUNS)[number % 3], ask=text, front="abc", point="mean-99")
        assert not app.exception, text
        assert "unexpected error" not in page_text(app), text
        assert app.radio(key="front-question").options[1].startswith("Best model with k ")
    for count in (1, 6, 96, 4096):
        for text in ("", "heads 1", f"heads {count}", "by estimate points 2"):
            if text:
                assert link_text(values_of_link(text, count), count) in (text, "")
