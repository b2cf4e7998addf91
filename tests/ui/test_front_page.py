"""The front and the savings on the Prune page.

The worker is only a list of jobs, and the front is made up.
"""

from __future__ import annotations

import shlex
from dataclasses import replace

import numpy as np
import pytest
import reference
from support.app_pages import page_text, run_page
from support.cached_scores import GRID as LARGE
from support.cached_scores import fill_cache
from support.expected_errors import raises
from support.fake_client import FakeClient, job_row
from support.page_actions import choose, press
from support.submitted_jobs import submitted_jobs
from support.synthetic_fronts import (
    COSTS,
    FINGERPRINT,
    GRID,
    IDENTITY,
    LOADED_MODEL,
    ORDERS,
    POINTS,
    keep_front,
    made_front,
    made_point,
)
from typer.main import get_command

from headlab.charts.front import front_chart
from headlab.cli.run import build
from headlab.core import HeadlabError
from headlab.dashboard.frame import Choice
from headlab.dashboard.names import PRUNE_TAB, PRUNE_TABS, front_params
from headlab.dashboard.pages.jobs.details import command_lines
from headlab.dashboard.pages.prune.front_form import QUICK_SECONDS, QUICK_SIZES, largest_quick_front
from headlab.dashboard.pages.prune.front_growth import growing_chart
from headlab.dashboard.pages.prune.front_question import (
    default_values,
    link_text,
    point_text,
    values_of_link,
)
from headlab.dashboard.pages.prune.front_view import pin_clicked_point, st
from headlab.dashboard.pages.prune.pinned import point_list_key, take_point
from headlab.dashboard.pages.prune.point_words import (
    HEADS_KEPT,
    PARAMETERS_KEPT,
    SIZE_IN_MB,
    WholeModel,
    hover_text,
)
from headlab.dashboard.pages.prune.savings import (
    estimate_help,
    estimate_job,
    fitting_estimate,
    newest_measured,
    worth_job,
)
from headlab.dashboard.pages.prune.stored_fronts import (
    MEAN_OF_LANGUAGES,
    WEAKEST_LANGUAGE,
    front_dots,
    front_label,
    matching_fronts,
    read_front,
)
from headlab.dashboard.panels.jobs import job_format
from headlab.dashboard.panels.masks.history import MaskHistory, mask_link_text
from headlab.jobs.experiment import FrontJob
from headlab.masks import Mask
from headlab.methods import Forecast
from headlab.plots.drawing import plotly_figure
from headlab.plots.report import report_figures
from headlab.results import Result, Store
from headlab.studies.front_so_far import FrontSoFar, LanguageSoFar, ModelSoFar
from headlab.studies.pareto import LANGUAGES_TABLE, mask_at
from headlab.studies.savings import MeasuredSpeed, ModelCost, Ratio, Savings, VocabularyCost
from headlab.studies.table import STUDIES
from headlab.worker.schemas import Figure

pytestmark = pytest.mark.usefixtures("native_buttons")

CHOICE = Choice("e5-small-intents", "intents", ("de", "th"), "shapley")
TWO_OFF = mask_link_text(np.array([False, True, True, False, True, True]))


class Worker(FakeClient):
    """A worker that also loads a model and evaluates masks."""

    description = LOADED_MODEL

    def models(self):
        (card,) = super().models()
        return [card.model_copy(update={"fingerprint": FINGERPRINT})]

    def load_model(self, name):
        return self.description

    def describe(self, **changes):
        """Change the description of the loaded model from now on."""
        self.description = self.description.model_copy(update=changes)

    def evaluate(self, request):
        comparison_with_baseline = {
            "baseline": 0.8,
            "difference": 0.0,
            "p": 1.0,
            "flipped_right": 0,
            "flipped_wrong": 0,
        }
        yield Figure(
            language=request.language,
            n=request.size,
            total=request.size,
            accuracy=0.8,
            low=0.7,
            high=0.9,
            done=True,
            **({} if request.mask is None else comparison_with_baseline),
        )


@pytest.fixture
def client():
    return Worker()


def run(**query):
    return run_page("prune", langs=["de", "th"], **query)


def metrics(app):
    return {metric.label: (metric.value, metric.delta) for metric in app.metric}


def mask(*removed_heads):
    kept_heads = np.ones(GRID.size, bool)
    kept_heads[list(removed_heads)] = False
    return Mask(GRID, kept_heads, IDENTITY)


def measured_savings(removed_count=2):
    shrunk = ModelCost(1_700_000, 800_000, 12)
    speed = MeasuredSpeed(
        "cpu (2 threads)",
        8,
        12,
        10.0,
        Ratio(1.01, 0.98, 1.04, 0.95, 15),
        Ratio(0.8, 0.7, 0.9, 0.95, 15),
    )
    return Savings(6, removed_count, ModelCost(2_000_000, 1_000_000, 12), shrunk, (speed,))


def test_the_page_has_the_parameters_and_operations_of_the_present_mask_at_once(worker):
    baseline_metrics = metrics(run())
    assert baseline_metrics["Parameters"] == ("2.0 M", "unchanged")
    app = run(m=TWO_OFF)
    assert metrics(app)["Parameters"] == ("1.7 M", "−15.0 %")
    shrunk_cost = COSTS.shrunk(np.array([False, True, True, False, True, True]))
    assert metrics(app)["Multiply-accumulates, 32 tokens"][0] == f"{shrunk_cost.macs / 1e6:,.1f} M"
    assert "A mask alone saves no computation" in page_text(app)
    assert not worker.calls


@pytest.mark.parametrize(("pieces", "is_named"), [(60_000, True), (10_000, False)])
def test_a_large_vocabulary_is_named_with_the_way_to_cut_it(worker, pieces, is_named):
    worker.describe(costs=replace(COSTS, vocabulary=VocabularyCost(pieces, 20)))
    text = page_text(run())
    assert ("60 % of the parameters are vocabulary. *Write the model* can" in text) == is_named


def test_a_worker_that_does_not_say_what_heads_cost_is_no_model_that_cannot_shrink(worker):
    worker.describe(costs=None)
    assert "does not say what this model's heads cost" in page_text(run())
    worker.describe(costs=replace(COSTS, layers=(), note="it is of a family apart"))
    assert "No head of this model can be removed: it is of a family apart." in page_text(
        run(m=TWO_OFF)
    )


def test_measuring_the_speed_is_a_job_of_just_this_mask(worker):
    app = run(m=TWO_OFF)
    press(app, "worth-measure")
    speed_job = submitted_jobs(worker)[0]
    assert speed_job.kind == "worth"
    assert speed_job.params["model"] == "e5-small-intents"
    assert speed_job.params["languages"] == ["de", "th"]
    assert speed_job.params["mask"]["kept"] == {"encoder": [[0, 1, 1], [0, 1, 1]]}
    assert "What it measures appears here" in page_text(app)


def test_the_speed_is_estimated_in_few_rounds_with_the_cost_on_the_button(worker):
    worker.forecast_of_all_jobs = Forecast(forwards=2304, seconds=11.0, basis="as just timed")
    app = run(m=TWO_OFF)
    assert app.button(key="worth-estimate").label == "Estimate the speed (about 11 s)"
    press(app, "worth-estimate")
    job = submitted_jobs(worker)[0]
    assert (job.kind, job.params["rounds"], job.params["examples"]) == ("worth", 9, 4)
    assert job.params["batch_sizes"] == [1, 32]
    assert job.params["mask"]["kept"] == {"encoder": [[0, 1, 1], [0, 1, 1]]}
    savings = replace(measured_savings(), spec={"rounds": 9})
    worker.change(1, state="done", result={"worth": savings.to_json()})
    app = run(m=TWO_OFF)
    assert "**An estimate**, from 9 rounds" in page_text(app)
    labels = [button.label for button in app.button]
    assert not any(label.startswith("Estimate the speed") for label in labels)
    assert "Measure the speed (about 11 s)" in labels


@pytest.mark.parametrize(
    ("longest_seconds", "rounds", "sizes", "seconds"),
    [
        (None, 9, (1, 32), None),
        (12.0, 9, (1, 32), 12.0),
        (45.0, 6, (1, 8), 10.0),
        (270, 6, (1,), 20),
    ],
)
def test_a_slow_machine_estimates_the_speed_in_less(longest_seconds, rounds, sizes, seconds):
    estimate, estimate_seconds = fitting_estimate(longest_seconds)
    assert estimate == (rounds, sizes)
    assert estimate_seconds == (seconds if seconds is None else pytest.approx(seconds))
    assert f"{rounds} rounds" in estimate_help(estimate)


def test_a_slow_machine_s_estimate_is_what_its_button_says(worker):
    worker.forecast_of_all_jobs = Forecast(forwards=1944, seconds=45.0, basis="as just timed")
    app = run(m=TWO_OFF)
    assert app.button(key="worth-estimate").label == "Estimate the speed (about 10 s)"
    press(app, "worth-estimate")
    params = submitted_jobs(worker)[0].params
    assert (params["rounds"], params["batch_sizes"]) == (6, [1, 8])


def test_an_estimate_of_the_speed_never_takes_the_place_of_a_measurement(worker):
    for number, job in enumerate((worth_job(CHOICE, mask(0, 3)), estimate_job(CHOICE, mask(0, 3)))):
        savings = replace(measured_savings(), spec={"rounds": job.rounds})
        row = job_row(
            number,
            "done",
            kind="worth",
            params=job.params(),
            result={"worth": savings.to_json()},
        )
        worker.rows.append(row)
    measurement = newest_measured(worker.rows, "e5-small-intents", mask(0, 3))
    assert not measurement.is_estimate
    assert measurement.time_words() == [
        "batch of 8: 8.0 ms, 80\N{NO-BREAK SPACE}% of the whole model's time [70, 90]"
    ]


def test_the_pinned_model_says_its_time_once_it_is_estimated(worker, tmp_path):
    key = keep_front(tmp_path / "cache")
    assert "Time: not measured yet." in page_text(run(**front_params(key)))
    # Heads 3 and 0 of order weakest, as in the answer.
    params = estimate_job(CHOICE, mask(0, 3)).params()
    savings = replace(measured_savings(), spec={"rounds": 9})
    worker.rows.append(
        job_row(4, "done", kind="worth", params=params, result={"worth": savings.to_json()})
    )
    app = run(**front_params(key))
    assert "Time, batch of 8: 8.0 ms, 80\N{NO-BREAK SPACE}% of the whole" in page_text(app)
    assert "[70, 90] (estimate)." in page_text(app)
    press(app, "front-speed-measure")
    assert "rounds" not in submitted_jobs(worker)[-1].params  # as many as usual


def test_the_speed_measured_for_this_mask_is_shown_and_not_that_of_another(worker):
    params = worth_job(CHOICE, mask(0, 3)).params()
    params_of_other_mask = worth_job(CHOICE, mask(1)).params()
    worker.rows.append(
        job_row(
            4, "done", kind="worth", params=params, result={"worth": measured_savings().to_json()}
        )
    )
    worker.rows.append(
        job_row(
            5,
            "done",
            kind="worth",
            params=params_of_other_mask,
            result={"worth": measured_savings(1).to_json()},
        )
    )
    app = run(m=TWO_OFF)
    table = next(frame.value for frame in app.dataframe if "Removed" in frame.value)
    assert table["Removed"].tolist() == ["0.80 × [0.70, 0.90]"]
    assert table["Masked"].tolist() == ["1.01 × [0.98, 1.04], may be the same"]
    assert newest_measured(worker.rows, "e5-small-intents", mask(2)) is None
    broken = job_row(
        6,
        "done",
        kind="worth",
        params={"model": "e5-small-intents", "mask": {}},
        result={"worth": {}},
    )
    assert newest_measured([broken], "e5-small-intents", mask(2)) is None
    assert "Measure the speed again (about 2 min)" in [button.label for button in app.button]


def test_a_table_wider_than_its_place_says_that_it_scrolls(worker):
    app = run(m=TWO_OFF)
    assert not app.error
    assert "2 heads off: final, 512 dev examples a language." in page_text(app)
    assert "The table scrolls sideways." in page_text(app)
    assert "scrolls" not in page_text(run())


def test_the_reason_for_missing_figures_stands_in_their_place(worker, monkeypatch):
    def refuse(*arguments, **options):
        raise HeadlabError("task lm has no texts", code="lm.no_texts")

    monkeypatch.setattr(worker, "evaluate", refuse)
    app = run()
    assert [error.value for error in app.error] == ["task lm has no texts"]
    assert not {"Mean of 2 languages", "German (de)", "Thai (th)"} & set(metrics(app))
    element_names = [getattr(element, "key", None) or element.type for element in app.main]
    assert (
        element_names.index("error")
        < element_names.index("split")
        < element_names.index("prune-again")
    )


def test_a_rule_that_chooses_no_head_leaves_the_mask_as_it_is(worker, cache):
    fill_cache(cache, FINGERPRINT)
    worker.describe(grid=LARGE, costs=None)
    app = run(rule="bottom", k="0")
    assert "**0 of 144 heads** would be off" in page_text(app)
    assert "The rule chooses no head, so there is nothing to switch off." in page_text(app)
    assert app.button(key="prune-suggest").disabled
    app.slider(key="k").set_value(3).run()
    assert not app.button(key="prune-suggest").disabled
    assert "The rule chooses no head" not in page_text(app)


def test_a_front_is_requested_with_its_question_after_its_cost_is_shown(worker):
    app = run()
    assert "No front of this model and task is in the cache yet." in page_text(app)
    assert "What it will take: **About" in page_text(app)
    app.number_input(key="front-within").set_value(2.0).run()
    press(app, "front-start")
    front_job = submitted_jobs(worker)[0]
    assert front_job.kind == "front"
    assert front_job.place == "here"
    assert front_job.params["task"] == "intents"
    assert front_job.params["method"] == "shapley"
    assert front_job.params["options"] == {
        "orders": "mean,weakest,cost",
        "points": 7,
        "within": 2.0,
        "heads": None,
        "by": "bound",
    }
    app.radio(key="front-question").set_value("Best model with k heads").run()
    press(app, "front-start")
    assert submitted_jobs(worker)[-1].params["options"]["heads"] == 4
    assert submitted_jobs(worker)[-1].params["options"]["within"] is None


def test_a_quick_front_is_as_large_as_this_machine_does_in_two_minutes(worker):
    app = run()
    worker.forecast_of_all_jobs = Forecast(forwards=10_000, seconds=100.0, basis="as just timed")
    app.number_input(key="front-within").set_value(2.0).run()  # another job, so another forecast
    press(app, "front-quick")
    press(app, "front-start")
    spec = submitted_jobs(worker)[-1].params
    points, test = largest_quick_front(2, 512, 0.01)
    assert 0.01 * 2 * (points * 512 + 2 * test) <= QUICK_SECONDS
    assert spec["options"]["orders"] == "mean"
    assert spec["options"]["within"] == 2.0
    assert spec["options"]["points"] == min(points, 7)
    assert spec["dev_size"] == 512
    assert spec["test_size"] == test
    press(app, "front-full")
    press(app, "front-start")
    full_spec = submitted_jobs(worker)[-1].params
    assert full_spec["options"]["orders"] == "mean,weakest,cost"
    assert full_spec["dev_size"] == 512
    assert full_spec["test_size"] is None
    assert (
        "2 languages × 3 orders × 7 sizes × 512 dev examples = 21,504 forwards at most"
        in page_text(app)
    )


def test_quick_says_its_pace_or_that_it_is_not_known(worker):
    worker.forecast_of_all_jobs = Forecast(forwards=10_000, seconds=100.0, basis="as just timed")
    points, test = largest_quick_front(2, 512, 0.01)
    known = f"Quick: 1 order, {points} sizes, {test:,} test examples a language, which fits"
    assert f"{known} into two minutes at 10 ms an example here." in page_text(run())
    worker.forecast_of_all_jobs = Forecast(forwards=None, seconds=None, basis="not known yet")
    text = page_text(run())
    assert "This machine's pace is not known yet: Quick assumes 4 ms an example." in text
    worker.forecast_of_all_jobs = Forecast(forwards=10, seconds=90.0, basis="as just timed")
    assert "the least there is; at 9,000 ms an example here, more than two" in page_text(run())
    worker.forecast_of_all_jobs = Forecast(forwards=0, seconds=0.0, basis="all is there")
    assert "This machine's pace is not known: the front above needs no" in page_text(run())


def test_quick_pressed_before_the_pace_is_known_is_corrected_once_it_is(worker):
    worker.forecast_of_all_jobs = Forecast(forwards=None, seconds=None, basis="not known yet")
    app = run()
    press(app, "front-quick")
    assert app.number_input(key="front-points").value == QUICK_SIZES[0][0]
    assert "What Quick filled in is corrected once the pace is known." in page_text(app)
    worker.forecast_of_all_jobs = Forecast(forwards=10_000, seconds=200.0, basis="as just timed")
    app.number_input(key="front-within").set_value(2.0).run()  # another job, so another forecast
    points, test = largest_quick_front(2, 512, 0.02)
    assert points < QUICK_SIZES[0][0]
    assert app.number_input(key="front-points").value == points
    assert app.number_input(key="front-test").value == test
    assert f"Quick: 1 order, {points} sizes" in page_text(app)


def test_a_form_that_was_changed_after_quick_is_not_corrected(worker):
    worker.forecast_of_all_jobs = Forecast(forwards=None, seconds=None, basis="not known yet")
    app = run()
    press(app, "front-quick")
    app.number_input(key="front-points").set_value(11).run()
    worker.forecast_of_all_jobs = Forecast(forwards=10_000, seconds=200.0, basis="as just timed")
    app.number_input(key="front-within").set_value(2.0).run()
    assert app.number_input(key="front-points").value == 11


def test_a_quick_front_shrinks_with_the_languages_and_the_pace():
    sizes = [
        largest_quick_front(1, 512, 1e-6),
        largest_quick_front(4, 512, 0.004),
        largest_quick_front(15, 512, 0.003),
        largest_quick_front(15, 512, 9.0),
    ]
    assert sizes[0] == QUICK_SIZES[0]
    assert sizes[-1] == QUICK_SIZES[-1]  # the smallest front that is offered
    assert sizes == sorted(sizes, key=QUICK_SIZES.index)
    assert len(set(sizes)) == len(sizes)


def test_a_front_in_the_cache_is_shown_and_a_point_of_it_becomes_the_present_mask(worker, tmp_path):
    keep_front(tmp_path / "cache")
    app = run()
    assert "On German (de) and Thai (th):" in page_text(app)
    assert "Two heads go, by order weakest; 4 are left." in page_text(app)
    point_labels = front_point_box(app).options
    assert point_labels[0] == "2 heads · weakest de −2.0 · mean −1.0 · order weakest"
    assert "4 heads · weakest de −0.1 · mean +0.0 · order weakest · the answer" in point_labels
    press(app, "front-put")
    assert app.query_params["m"] == TWO_OFF
    assert metrics(app)["Parameters"][0] == "1.7 M"
    assert app.session_state[PRUNE_TAB] == "Switch heads"


def test_the_mask_of_a_front_is_among_the_known_masks(worker, tmp_path):
    answers = [(0.5, POINTS[2]), (1.5, POINTS[1]), (0.1, POINTS[0])]  # the last removes no head
    keys = [
        keep_front(tmp_path / "cache", within=loss, answer=answer, hour=5 + hour)
        for hour, (loss, answer) in enumerate(answers)
    ]
    app = run()  # Prune knows the model's heads from now on
    app.switch_page("pages/masks.py").run()
    assert not app.exception
    names = app.selectbox(key="masks-a").options
    assert all(name.startswith("Front of intents: ") for name in names)
    assert {name[-7:-1] for name in names} == {key[:6] for key in keys[:2]}


def front_point_box(app):
    (point_box,) = (box for box in app.selectbox if str(box.key).startswith("front-point"))
    return point_box


WINNING = [
    *POINTS[:4],
    made_point(ORDERS[1], 2, 0.01, 0.01),
    made_point(ORDERS[1], 4, -0.001, 0.0),
]


@pytest.mark.parametrize("answer", [WINNING[0], WINNING[1]])
def test_an_answer_that_others_beat_is_offered_and_preselected(worker, tmp_path, answer):
    keep_front(tmp_path / "cache", points=WINNING, answer=answer)
    point_box = front_point_box(run())
    assert point_box.value.order == "mean"
    assert point_box.value.heads_removed == answer.heads_removed
    assert point_box.options[point_box.index].endswith("order mean · the answer")
    assert sum("the answer" in option for option in point_box.options) == 1


def test_another_front_preselects_its_own_answer_whatever_was_picked_before(worker, tmp_path):
    keys = [
        keep_front(tmp_path / "cache", within=loss, answer=POINTS[answer_index])
        for loss, answer_index in ((1.0, 4), (2.0, 5))
    ]
    app = run()
    choose(app, "front-shown", keys[0])
    point_box = front_point_box(app)
    another_index = 2 if point_box.index == 1 else 1
    point_box.select_index(another_index).run()
    choose(app, "front-shown", keys[1])
    assert front_point_box(app).value.order == "weakest"
    assert front_point_box(app).value.heads_removed == 4


def test_the_front_that_fits_the_form_is_shown_and_one_of_other_settings_says_so(worker, tmp_path):
    """The newest front was shown, though it answered another question than the form asked."""
    keys = {
        criterion: keep_front(tmp_path / "cache", hour, within=1.0, by=criterion)
        for hour, criterion in enumerate(("bound", "estimate"))
    }
    app = run()
    front_box = app.selectbox(key="front-shown")
    assert front_box.value == keys["bound"]
    assert "other settings" not in page_text(app)
    assert all("within 1 point by the" in option for option in front_box.options)
    choose(app, "front-by", "estimate")
    assert app.selectbox(key="front-shown").value == keys["estimate"]
    choose(app, "front-shown", keys["bound"])
    assert app.selectbox(key="front-shown").value == keys["bound"]  # as chosen by hand
    assert (
        "other settings than those in the form above: within 1 point by the lower bound."
        in page_text(app)
    )
    app.number_input(key="front-within").set_value(2.5).run()
    assert "other settings than those in the form above: within 1 point by the" in page_text(app)


def growing_job(worker, state="running"):
    params = {**CHOICE_SPEC, "experiment": "front", "dev_size": 512}
    worker.rows.append(job_row(3, state, kind="front", params=params, note="order mean in th"))


FRONT_SO_FAR = FrontSoFar(
    ("de", "th"),
    5,
    (
        ModelSoFar(
            "mean",
            0,
            6,
            2_000_000,
            (
                LanguageSoFar("de", 512, 512, 0.9, 0.0),
                LanguageSoFar("th", 512, 512, 0.8, 0.0),
            ),
        ),
        ModelSoFar("mean", 2, 4, 1_600_000, (LanguageSoFar("de", 512, 512, 0.875, -0.025),)),
    ),
)


def test_a_front_is_shown_while_it_is_measured_and_claims_nothing(worker):
    growing_job(worker)
    worker.front = FRONT_SO_FAR
    worker.describe(bytes_a_parameter=4)
    text = page_text(run())
    assert "Front within 1 point by the lower bound, German (de) and Thai (th): being com" in text
    assert "2 of 5 models measured so far, 1 of them in all 2 languages" in text
    assert "Not final: no intervals, and nothing is chosen yet." in text
    assert "No front of this model and task is in the cache yet." not in text
    assert "The answer on test" not in text
    figure = plotly_figure(growing_chart(FRONT_SO_FAR, WHOLE))
    assert [trace.name for trace in figure.data] == ["mean"]  # no line of the best, no answer
    assert list(figure.data[0].x) == [8.0, 6.4]
    assert list(figure.data[0].y) == [0.0, -2.5]
    assert list(figure.data[0].marker.symbol) == ["circle", "circle-open"]
    assert "answered in 1 of 2 languages" in figure.data[0].text[1]
    assert figure.data[0].customdata is not None
    assert figure.layout.clickmode is None


def test_a_front_without_a_measured_model_says_where_its_job_is(worker):
    growing_job(worker)
    assert "No model to show yet" in page_text(run())
    worker.change(3, state="queued")
    assert "German (de) and Thai (th): waits for the worker." in page_text(run())


def test_a_front_of_another_task_does_not_grow_here(worker):
    growing_job(worker)
    worker.change(3, params={**worker.rows[0].params, "task": "slots"})
    worker.front = FRONT_SO_FAR
    assert "models measured" not in page_text(run())


def test_the_page_says_that_the_interval_of_a_loss_is_two_sided(worker, tmp_path):
    keep_front(tmp_path / "cache")
    assert "The interval is two-sided." in page_text(run())


def test_the_answer_takes_its_question_and_its_test_accuracies_along_and_other_points_do_not(
    monkeypatch, tmp_path
):
    keep_front(tmp_path, within=1.0)
    front = read_front(Store(tmp_path).reports().results[0], GRID)
    history = MaskHistory(GRID)
    monkeypatch.setattr(st, "session_state", {})
    take_point(front, history, "weakest", 2)
    assert history.mask.chosen["within"] == 1.0
    assert set(history.mask.chosen["evaluated"]["test"]["languages"]) == {"de", "th"}
    take_point(front, history, "mean", 2)
    assert history.mask.chosen["order"] == "mean"
    assert not {"within", "evaluated"} & set(history.mask.chosen)


def test_a_dot_that_is_clicked_is_pinned_and_an_empty_selection_does_nothing(monkeypatch, tmp_path):
    keep_front(tmp_path)
    front = read_front(Store(tmp_path).reports().results[0], GRID)
    state = {}
    monkeypatch.setattr(st, "session_state", state)
    pin_clicked_point("figure", front)
    state["figure"] = {"selection": {"points": []}}
    pin_clicked_point("figure", front)
    assert point_list_key(front) not in state
    state["figure"] = {"selection": {"points": [{"customdata": ["weakest", 2]}]}}
    pin_clicked_point("figure", front)
    assert state[point_list_key(front)] == front.point("weakest", 2)
    state["figure"] = {"selection": {"points": [{"customdata": {"0": "mean", "1": 4}}]}}
    pin_clicked_point("figure", front)
    assert state[point_list_key(front)] == front.point("mean", 4)


WHOLE = WholeModel(6, 2_000_000, 4)


def test_a_model_is_told_in_megabytes_heads_and_percent_of_the_whole(tmp_path):
    text = hover_text(POINTS[4], WHOLE)
    assert text.splitlines() == [
        "4 of 6 heads kept (67\N{NO-BREAK SPACE}%), 2 removed (order weakest)",
        "6.8 MB, 85.0\N{NO-BREAK SPACE}% of the whole model",
        "weakest language German (de): 79.9\N{NO-BREAK SPACE}% right, −0.1 [−1.1, +0.9] points, "
        "lower bound −0.9",
        "mean of the languages +0.0 [−0.8, +0.8] points",
        "time not measured yet",
    ]
    assert hover_text(POINTS[4], WHOLE, "9 ms").endswith("9 ms")
    unknown_whole = hover_text(POINTS[4], WholeModel(6))
    assert "1.70 million parameters\n" in unknown_whole
    untouched = hover_text(POINTS[0], WHOLE)
    assert "difference 0 by definition" in untouched
    assert "[" not in untouched


def test_the_chart_can_be_drawn_against_megabytes(worker, tmp_path):
    keep_front(tmp_path / "cache")
    assert app_costs(run()) == [PARAMETERS_KEPT, HEADS_KEPT]
    worker.describe(bytes_a_parameter=4)
    assert app_costs(run()) == [SIZE_IN_MB, PARAMETERS_KEPT, HEADS_KEPT]
    front = read_front(Store(tmp_path / "cache").reports().results[0], GRID)
    costs = [dot.cost for dot in front_dots(front, SIZE_IN_MB, WEAKEST_LANGUAGE, WHOLE)]
    assert costs == [pytest.approx(point.parameters * 4e-6) for point in POINTS]


def app_costs(app):
    return app.radio(key="front-cost").options


def test_the_pinned_model_is_described_and_stands_in_the_link(worker, tmp_path):
    worker.describe(bytes_a_parameter=4)
    key = keep_front(tmp_path / "cache")
    app = run(**front_params(key))
    assert "4 of 6 heads kept" in page_text(app)
    assert "Weights: 6.8 MB, 85.0\N{NO-BREAK SPACE}% of the whole model." in page_text(app)
    assert "point" not in app.query_params  # the answer needs none
    point_box = front_point_box(app)
    point_box.set_value(POINTS[5]).run()
    assert app.query_params["point"] == "weakest-4"
    assert "2 of 6 heads kept" in page_text(app)
    again = run(**front_params(key), point="weakest-4")
    assert point_text(front_point_box(again).value) == "weakest-4"
    # One that others beat is in no list, but can be linked to like any other.
    beaten = run(**front_params(key), point="mean-4")
    assert point_text(front_point_box(beaten).value) == "mean-4"
    press(beaten, "front-put")
    assert "4 heads off: final" in page_text(beaten)


def test_a_link_to_a_model_that_the_front_lacks_says_so(worker, tmp_path):
    app = run(**front_params(keep_front(tmp_path / "cache")), point="mean-77")
    assert "The link asks for model 'mean-77', which this front lacks." in page_text(app)
    assert front_point_box(app).value.order == "weakest"
    assert "point" not in app.query_params


LINKED_FORM = "within 2 by estimate orders mean-own points 9 dev 64 test 128"


def test_the_form_is_in_the_link_and_a_link_fills_it_in(worker):
    app = run(tool=PRUNE_TABS[1])
    assert "ask" not in app.query_params  # at its defaults
    app.number_input(key="front-within").set_value(2.0).run()
    assert app.query_params["ask"] == "within 2"
    linked = run(tool=PRUNE_TABS[1], ask=LINKED_FORM)
    assert linked.query_params["ask"] == LINKED_FORM
    press(linked, "front-start")
    params = submitted_jobs(worker)[-1].params
    assert params["options"] == {
        "orders": "mean,own",
        "points": 7,
        "within": 2.0,
        "heads": None,
        "by": "estimate",
    }
    assert (params["dev_size"], params["test_size"]) == (64, 128)
    by_heads = run(tool=PRUNE_TABS[1], ask="heads 3")
    assert by_heads.number_input(key="front-heads").value == 3
    by_heads.radio(key="front-question").set_value(
        "Smallest model within d points in every language"
    ).run()
    assert "ask" not in by_heads.query_params


@pytest.mark.parametrize(
    "text",
    [
        "within",
        "within 101",
        "within nan",
        "heads 7",
        "heads -1",
        "by chance",
        "orders best",
        "points 1",
        "points 99999",
        "dev all",
        "test 0",
        "speed 2",
        "within 2 " * 50,
    ],
)
def test_a_link_whose_form_cannot_be_read_says_so_and_changes_nothing(worker, text):
    with raises("front.link_unreadable"):
        values_of_link(text, 6)
    app = run(tool=PRUNE_TABS[1], ask=text)
    assert "which cannot be read" in page_text(app)
    assert app.number_input(key="front-within").value == 1.0
    assert "ask" not in app.query_params


def test_what_a_link_says_of_the_form_is_read_back_as_it_was():
    values = default_values(6)
    assert link_text(values, 6) == ""
    for text in (LINKED_FORM, "heads 0", "by estimate", "within 0.25 points 2"):
        assert link_text(values_of_link(text, 6), 6) == text


@pytest.mark.parametrize(
    ("cost", "value"),
    [
        (HEADS_KEPT, WEAKEST_LANGUAGE),
        (PARAMETERS_KEPT, WEAKEST_LANGUAGE),
        (PARAMETERS_KEPT, MEAN_OF_LANGUAGES),
    ],
)
def test_the_figure_has_every_point_and_joins_those_that_no_other_beats(tmp_path, cost, value):
    keep_front(tmp_path)
    front = read_front(Store(tmp_path).reports().results[0], GRID)
    dots = front_dots(front, cost, value)
    costs_and_values = [(dot.cost, dot.value) for dot in dots]
    assert [dot.best for dot in dots] == reference.is_undominated(costs_and_values)
    figure = plotly_figure(front_chart(dots, cost, value, loss=1.0, chosen=("weakest", 2)))
    line, *orders, ring = figure.data
    assert [trace.name for trace in orders] == ["mean", "weakest"]
    drawn_points = []
    for trace in orders:
        drawn_points.extend(tuple(row) for row in trace.customdata)
    assert drawn_points == [(point.order, point.heads_removed) for point in POINTS]
    assert len(line.x) == sum(dot.best for dot in dots)
    assert list(line.x) == sorted(line.x)
    assert (ring.x[0], ring.y[0]) == next(
        (d.cost, d.value) for d in dots if (d.order, d.removed) == ("weakest", 2)
    )
    for trace in orders:
        assert all("heads kept" in text and "<b>" not in text for text in trace.text)


def test_a_stored_front_is_drawn_from_its_tables_alone():
    (figure,) = report_figures(made_front(within=1.0)).values()
    pairs = [(point.parameters / 1e6, 100 * point.worst) for point in POINTS]
    best_pairs = sorted(
        {
            pair
            for pair, is_undominated in zip(pairs, reference.is_undominated(pairs), strict=True)
            if is_undominated
        }
    )
    drawn_pairs = sorted(set(zip(figure.data[0].x, figure.data[0].y, strict=True)))
    np.testing.assert_allclose(drawn_pairs, best_pairs)


def test_fronts_of_other_models_and_tasks_are_left_and_those_of_these_languages_come_first(
    tmp_path,
):
    keep_front(tmp_path)
    keep_front(tmp_path, within=2.0)
    results = Store(tmp_path).reports().results
    assert len(matching_fronts(results, FINGERPRINT, "intents", ["de", "th"])) == 2
    assert not matching_fronts(results, "e" * 64, "intents", ["de"])
    assert not matching_fronts(results, FINGERPRINT, "slots", ["de"])
    assert "within" in front_label(results[0])
    with raises("front.order_invalid"):
        mask_at(made_front(), "best", 2, GRID)


@pytest.mark.parametrize(
    "options",
    [
        {"within": 2.0},
        {"heads": 4},
        {"within": 0.5, "by": "estimate", "points": None, "orders": "mean,own"},
    ],
)
def test_the_command_that_is_shown_makes_the_same_front(options, monkeypatch):
    all_options = STUDIES["front"].resolve(options)
    front_options = {
        name: all_options[name] for name in ("orders", "points", "within", "heads", "by")
    }
    front_job = FrontJob.model_construct(
        model="m",
        task="t",
        languages=["de", "th"],
        method="gradient",
        method_options={},
        options=front_options,
        dev_size=64,
        test_size=None,
        seed=3,
    )
    command_words = shlex.split(front_job.terminal_lines())
    front = get_command(build()).commands["front"]
    arguments = front.make_context("front", command_words[2:]).params
    assert arguments["model"] == "m"
    assert arguments["languages"] == "de,th"
    assert arguments["method"] == "gradient"
    points = None if arguments["every"] else arguments["points"]
    options_read = {"orders": arguments["orders"], "points": points, "by": arguments["by"]}
    assert options_read == {name: front_options[name] for name in options_read}
    assert arguments["within"] == front_options["within"]
    assert arguments["heads"] == front_options["heads"]
    assert arguments["size"] == 64
    assert arguments["seed"] == 3
    assert arguments["test_size"] is None


def test_jobs_of_savings_and_fronts_have_titles_details_and_commands():
    params = {
        **worth_job(CHOICE, mask(0, 3)).params(),
        "rounds": 15,
    }
    result = {"worth": measured_savings().to_json()}
    row = job_row(3, "done", kind="worth", params=params, result=result)
    assert job_format.job_title(row) == "Speed of a mask for German (de), Thai (th)"
    details = dict(job_format.job_details(row))
    assert details["Heads off"] == "2"
    assert "Mask" not in details
    assert command_lines(row).startswith("headlab worth --mask MASK.json --model e5-small-intents")
    front = job_row(4, "done", kind="front", params={**CHOICE_SPEC, "experiment": "front"})
    assert (
        job_format.job_title(front)
        == "Front of smaller models, Shapley value (TMAB) for German (de), Thai (th)"
    )
    assert "Experiment" not in dict(job_format.job_details(front))
    assert command_lines(front).startswith("headlab front --model e5-small-intents")


CHOICE_SPEC = {
    "model": "e5-small-intents",
    "task": "intents",
    "languages": ["de", "th"],
    "method": "shapley",
    "method_options": {},
    "options": {
        "orders": "mean",
        "points": 5,
        "within": 1.0,
        "heads": None,
        "by": "bound",
    },
}


def test_reported_12_a_link_opens_the_tab_and_the_front_that_it_names(worker, tmp_path):
    """The sentence on the Overview is of that front, even if another one fits the form."""
    keys = {
        criterion: keep_front(tmp_path / "cache", within=1.0, by=criterion)
        for criterion in ("bound", "estimate")
    }
    app = run(**front_params(keys["estimate"]))
    assert app.selectbox(key="front-shown").value == keys["estimate"]
    assert app.session_state[PRUNE_TAB] == PRUNE_TABS[1]
    assert app.query_params["front"] == keys["estimate"][:12]
    choose(app, "front-shown", keys["bound"])
    assert app.selectbox(key="front-shown").value == keys["bound"]  # as chosen by hand
    assert app.query_params["front"] == keys["bound"][:12]  # so that a copied link stays true
    app.number_input(key="front-within").set_value(2.5).run()
    assert app.query_params["front"] == app.selectbox(key="front-shown").value[:12]


def test_a_front_that_was_asked_for_is_shown_once_it_is_there(worker, tmp_path):
    old_key = keep_front(tmp_path / "cache", within=2.0)
    app = run(**front_params(old_key))
    press(app, "front-start")
    assert "front" not in app.query_params
    assert "Its front grows below." in page_text(app)
    new_key = keep_front(tmp_path / "cache", 6, within=1.0)
    app.run()
    assert app.selectbox(key="front-shown").value == new_key
    assert app.query_params["front"] == new_key[:12]


def test_a_link_fills_the_form_in_again_after_the_page_was_left(worker):
    app = run(tool=PRUNE_TABS[1], ask="within 2")
    app.number_input(key="front-within").set_value(3.0).run()
    assert app.query_params["ask"] == "within 3"
    app.switch_page("pages/jobs.py").run()
    app.switch_page("pages/prune.py")
    app.query_params["ask"] = "within 2"
    app.run()
    assert app.number_input(key="front-within").value == 2.0


def test_reported_12_a_link_to_a_front_that_does_not_exist_says_so(worker, tmp_path):
    for criterion in ("bound", "estimate"):
        keep_front(tmp_path / "cache", within=1.0, by=criterion)
    app = run(tool=PRUNE_TABS[1], front="0123456789ab")
    assert (
        "The link asks for front '0123456789ab', which does not exist for this model and task."
        in page_text(app)
    )


def test_reported_12_a_finished_front_job_opens_its_own_front(worker, tmp_path):
    keys = [
        keep_front(tmp_path / "cache", hour, within=1.0, by=criterion)
        for hour, criterion in enumerate(("estimate", "bound"))
    ]
    params = {
        "model": "e5-small-intents",
        "task": "intents",
        "languages": ["de", "th"],
        "method": "shapley",
    }
    worker.rows.append(
        job_row(
            7,
            "done",
            kind="front",
            params=params,
            result={"keys": keys[:1]},
        )
    )
    app = run_page("jobs", langs=["de", "th"], job="7")
    press(app, "results-prune")
    assert app.selectbox(key="front-shown").value == keys[0]
    assert app.session_state[PRUNE_TAB] == PRUNE_TABS[1]


def test_reported_12_a_front_of_the_chosen_languages_goes_before_one_that_fits_the_form_better(
    worker, tmp_path
):
    key_of_chosen_languages = keep_front(
        tmp_path / "cache", within=2.0, by="estimate", orders="mean"
    )
    report = made_front(within=1.0)
    spec = {**report.spec, "task": {**report.spec["task"], "language": "de,th,fi"}}
    stored_run = Store(tmp_path / "cache").run(spec)
    stored_run.finish(
        replace(report, spec=spec), {"created": "2026-11-23T05:00:00+00:00", "versions": {}}
    )
    app = run()
    assert app.selectbox(key="front-shown").value == key_of_chosen_languages
    choose(app, "front-shown", stored_run.key)
    assert "On German (de), Thai (th) and Finnish (fi):" in page_text(app)


def test_reported_12_a_measured_speed_is_of_this_task_and_names_its_languages(worker):
    another_task = Choice("e5-small-intents", "slots", ("de", "th"), "shapley")
    one_language = Choice("e5-small-intents", "intents", ("th",), "shapley")
    for number, choice in enumerate((CHOICE, one_language, another_task)):
        params = worth_job(choice, mask(0, 3)).params()
        worker.rows.append(
            job_row(
                number,
                "done",
                kind="worth",
                params=params,
                result={"worth": measured_savings().to_json()},
            )
        )
    assert "On examples of intents in German (de) and Thai (th)." in page_text(run(m=TWO_OFF))
    del worker.rows[0]
    assert "On examples of intents in Thai (th)." in page_text(run(m=TWO_OFF))
    del worker.rows[0]
    assert "On examples of" not in page_text(run(m=TWO_OFF))


def test_reported_19_a_front_that_another_program_wrote_has_a_label_and_is_refused_in_a_sentence(
    tmp_path,
):
    front = made_front(within=1.0)
    spec = {**front.spec, "options": {}}
    without_options = replace(front, spec=spec)
    assert "question not recorded" in front_label(Result("k", tmp_path, without_options, {}))
    assert "method not recorded" in front_label(Result("k", tmp_path, without_options, {}))
    (languages,) = (table for table in front.tables if table.name == LANGUAGES_TABLE)
    column = languages.columns.index("accuracy, %")
    rows = [list(row) for row in languages.rows]
    rows[3][column] = "=1+1"
    spoiled_table = replace(languages, rows=tuple(map(tuple, rows)))
    tables = tuple(spoiled_table if table is languages else table for table in front.tables)
    with raises("front.unreadable"):
        read_front(Result("k", tmp_path, replace(front, tables=tables), {}), GRID)
