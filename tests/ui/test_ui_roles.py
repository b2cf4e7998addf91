"""The Roles page with made-up reports and a worker that is only a list of jobs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text, run_page, shown_text
from support.cached_reports import keep_report
from support.cached_scores import GRID as LARGE
from support.cached_scores import HELPFUL, made_scores
from support.expected_errors import raises
from support.fake_client import job_row
from support.page_actions import choose, press
from support.submitted_jobs import submitted_jobs
from support.synthetic_roles import (
    GRID,
    HEAD_ROLES,
    SENTENCE,
    TWO_ROLES,
    head_with_two_roles,
    made_roles,
)
from typer.main import get_command

from headlab.cli.run import build
from headlab.core import (
    Evaluation,
    Head,
    HeadGrid,
    HeadlabError,
    Report,
    Stack,
    Table,
    parse_options,
)
from headlab.dashboard.frame import Choice
from headlab.dashboard.pages.jobs.details import command_lines
from headlab.dashboard.pages.roles.across_languages import (
    RolesAcrossLanguages,
    across_table,
    compare_languages,
    reading_caption,
)
from headlab.dashboard.pages.roles.remaining import shown_sizes
from headlab.dashboard.panels.heads.head_actions import mask_without
from headlab.dashboard.panels.heads.role_card import example_html, examples_by_role_and_head
from headlab.dashboard.panels.jobs import job_format
from headlab.dashboard.panels.masks.history import HISTORY_KEY_PREFIX
from headlab.dashboard.panels.stored import stored_roles
from headlab.dashboard.panels.stored.stored_roles import (
    TASK_SOURCE,
    TREEBANK_SOURCE,
    role_counts_by_size,
    roles_requests,
)
from headlab.dashboard.widgets import head_press_action
from headlab.jobs.roles import RolesJob
from headlab.masks import Mask, full_mask
from headlab.pictures import LOOKS, in_legend_order, role_map_of
from headlab.plots.heads import roles_across_languages, roles_by_size_figure
from headlab.report.commands import job_that_makes
from headlab.results import Store
from headlab.roles import KINDS, OPTIONS, Roles, group_of, read_roles
from headlab.roles.table import IDLE

pytestmark = pytest.mark.usefixtures("native_buttons", "worker")

CHOICE = Choice("e5-small-intents", "intents", ("de", "th"), "shapley")
TREE = "1\tTime\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tflies\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def run(path: str = "roles", **query) -> AppTest:
    return run_page(path, **query)


def html(app: AppTest) -> str:
    return "\n".join(node.proto.body for node in app.main if node.type == "html")


def map_data(app: AppTest) -> dict[str, Any]:
    """What the map of heads sends to the browser."""
    components = [node for node in app.main if node.type == "bidi_component"]
    data_of_components = [json.loads(component.proto.json) for component in components]
    (picture,) = [data for data in data_of_components if "roles" in data]
    return picture


def commands(app: AppTest) -> list[str]:
    """The page's commands for roles: for the report that is shown, then for what would be made."""
    return [code.value for code in app.code if code.value.startswith("headlab roles ")]


def labels(app: AppTest) -> list[str]:
    return [expander.label for expander in app.expander]


# The map.


def test_every_head_has_the_colours_of_its_roles_and_the_legend_counts_them():
    picture = stored_roles.role_map_data(read_roles(made_roles()))
    kinds = [kind["name"] for kind in picture["kinds"]]
    assert kinds == list(LOOKS)
    for kind_indices, role in zip(picture["roles"], HEAD_ROLES, strict=False):
        (kind_index,) = kind_indices
        assert kinds[kind_index] == group_of(role)
    kinds_of_next_head = {kinds[kind_index] for kind_index in picture["roles"][len(HEAD_ROLES)]}
    assert kinds_of_next_head == {group_of(role) for role in TWO_ROLES}
    assert picture["roles"][6:] == [[]] * (GRID.size - 6)
    assert picture["shown"][:5] == ["−1", "S", "O", "R", "E"]
    kinds_of_heads = {group_of(role) for role in (*HEAD_ROLES, *TWO_ROLES)}
    counts = {kind["name"]: kind["heads"] for kind in picture["kinds"]}
    assert counts == {kind: int(kind in kinds_of_heads) for kind in LOOKS}


def tip(roles: Roles, head: Head) -> str:
    return role_map_of(roles).tips[roles.grid.index(head)]


def test_the_tip_of_a_head_names_several_roles_and_says_if_it_was_not_looked_at():
    report = made_roles()
    roles = read_roles(report)
    count_line, *role_lines = tip(roles, head_with_two_roles()).split("\n")
    assert count_line == "2 roles"
    role_names = [line.split(",")[0] for line in role_lines]
    assert role_names == [row.role for row in roles.roles_of(head_with_two_roles())]
    assert set(role_names) == set(TWO_ROLES)
    assert ["(baseline " in line for line in role_lines] == [True, False]
    assert "(chance " in role_lines[1]
    assert tip(roles, GRID.heads[-1]) == "no role"
    first_head = tuple(GRID.heads[0])
    measures, role_table, *other_tables = report.tables
    measures = dataclasses.replace(measures, rows=measures.rows[1:])
    remaining_rows = tuple(row for row in role_table.rows if row[:3] != first_head)
    role_table = dataclasses.replace(role_table, rows=remaining_rows)
    tables = (measures, role_table, *other_tables)
    without_first_head = read_roles(dataclasses.replace(report, tables=tables))
    assert without_first_head.grid == GRID
    assert stored_roles.role_map_data(without_first_head)["roles"][0] is None
    assert tip(without_first_head, GRID.heads[0]) == "not looked at"


def test_the_clearest_role_comes_first_and_looking_at_the_first_token_last():
    roles = read_roles(made_roles())
    assert roles.groups(head_with_two_roles()) == ["amod", "first token"]
    is_idle = [row.group in IDLE for row in roles.by_head[head_with_two_roles()]]
    assert is_idle == sorted(is_idle)
    points_above_chance = [
        row.numbers["above chance, points"]
        for row in roles.by_head[head_with_two_roles()]
        if row.group not in IDLE
    ]
    assert points_above_chance == sorted(points_above_chance, reverse=True)


def oklab(colour: str, cone_response: np.ndarray) -> np.ndarray:
    """A colour as OKLab (Ottosson 2020), as an eye of another cone response sees it.

    Args:
        colour: The colour in hexadecimal digits, as #rrggbb.
        cone_response: A linear change of its light, [3, 3].
    """
    srgb = np.array(list(bytes.fromhex(colour.removeprefix("#")))) / 255
    light = cone_response @ np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    cones = [
        [0.41222, 0.53633, 0.05145],
        [0.21190, 0.68070, 0.10740],
        [0.08830, 0.28172, 0.62998],
    ]
    opponent_colours = [
        [0.21045, 0.79362, -0.00407],
        [1.97800, -2.42859, 0.45059],
        [0.02590, 0.78277, -0.80868],
    ]
    return np.array(opponent_colours) @ np.cbrt(np.array(cones) @ light.clip(0, 1))


# Light as seen without one of the cones: Machado, Oliveira & Fernandes (2009), table 1, severity 1.
CONE_RESPONSES = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "no green": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "no blue": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}


@pytest.mark.parametrize("vision", list(CONE_RESPONSES))
def test_colour_blind_people_can_distinguish_the_colours_of_roles(vision):
    colours = [oklab(look.colour, CONE_RESPONSES[vision]) for look in LOOKS.values()]
    for colour, other_colour in itertools.combinations(colours, 2):
        assert np.linalg.norm(colour - other_colour) > 0.12


def test_letters_tell_roles_apart_too_and_every_role_of_the_library_has_its_look():
    assert len({look.mark for look in LOOKS.values()}) == len(LOOKS)
    assert {group_of(kind) for kind in KINDS} == set(LOOKS)
    assert in_legend_order(["zzz", "obj", "positional", "obj"]) == ["positional", "obj", "zzz"]


# Reading.


def without_table(report: Report, name: str) -> Report:
    """The report without the table of this name."""
    remaining_tables = tuple(table for table in report.tables if table.name != name)
    return dataclasses.replace(report, tables=remaining_tables)


def with_rows(report: Report, name: str, rows: Sequence[Sequence[Any]]) -> Report:
    """The report with other rows in the table of this name."""
    tables = []
    for table in report.tables:
        if table.name == name:
            table = dataclasses.replace(table, rows=tuple(map(tuple, rows)))
        tables.append(table)
    return dataclasses.replace(report, tables=tuple(tables))


def with_cell(report: Report, name: str, column: str, value: Any) -> Report:
    """The report with another value in one cell.

    Args:
        report: The report.
        name: The name of the table, in whose first row the cell is.
        column: The name of the column.
        value: The new value.
    """
    table = report.table(name)
    first_row, *other_rows = table.rows
    cells = list(first_row)
    cells[table.columns.index(column)] = value
    return with_rows(report, name, [cells, *other_rows])


BROKEN = [
    (without_table(made_roles(), "measures"), ("report.table_unknown", "'measures'")),
    (without_table(made_roles(), "roles"), ("report.table_unknown", "'roles'")),
    (with_cell(made_roles(), "roles", "layer", "three"), ("roles.head_malformed",)),
    (with_cell(made_roles(), "measures", "head", 10**9), ("roles.head_malformed",)),
    (with_cell(made_roles(), "measures", "layer", True), ("roles.head_malformed",)),
    (with_cell(made_roles(), "roles", "has it", 1), ("roles.answer_invalid",)),
    (with_cell(made_roles(), "roles", "role", None), ("roles.answer_invalid",)),
    (
        with_cell(made_roles(), "roles", "share, %", "much"),
        ("roles.number_invalid", "share, %", "'much'"),
    ),
    (
        with_cell(made_roles(), "measures", "confidence", float("nan")),
        ("roles.number_invalid", "confidence", "nan"),
    ),
]


@pytest.mark.parametrize(("report", "code_and_values"), BROKEN)
def test_a_report_of_other_columns_or_cells_is_refused_with_a_sentence(report, code_and_values):
    with raises(*code_and_values):
        read_roles(report)


def test_a_report_is_read_or_refused_whatever_its_cells_hold():
    rng = random.Random(6)
    odd_cells = [
        None,
        "",
        "x",
        -1,
        10**12,
        True,
        0.5,
        float("inf"),
        "position",
        "position +x",
        "nsubj:",
    ]
    text = json.dumps(made_roles().to_json())
    refusals = 0
    for _ in range(150):
        value = json.loads(text)
        table = rng.choice([table for table in value["tables"] if table["rows"]])
        row = rng.choice(table["rows"])
        row[rng.randrange(len(row))] = rng.choice(odd_cells)
        report = Report.from_json(value)
        try:
            roles = read_roles(report)
            examples_by_role_and_head(report.table("role-examples"))
        except HeadlabError:
            refusals += 1
        else:
            assert len(stored_roles.role_map_data(roles)["roles"]) == roles.grid.size
    assert 0 < refusals < 150


# The page with reports.


def test_a_report_is_a_map_a_card_tables_examples_and_how_it_was_made(cache):
    keep_report(cache, made_roles("de"), 1)
    app = run(langs=["de"], head="encoder.0.1")
    assert map_data(app)["selected"] == 1
    assert map_data(app)["clickable"]
    assert "Head 0.1" in page_text(app)
    assert "nsubj: dependent to governor: " in html(app)
    measures = dict(app.table[0].value.to_numpy().tolist())
    assert measures["Tokens"] == "4,321"
    assert "shares count weight" in page_text(app)  # the role of the same name is another figure
    assert measures["Separator share"].endswith(" %")
    assert "1 Nov 2026, 12:00 UTC · German (de) · 75 sentences of dev (treebank)" in page_text(app)
    assert "other weights" not in page_text(app)
    assert "- Made up for a test." in page_text(app)
    head, counts, relations = (frame.value for frame in app.dataframe[:3])
    assert head["role"].tolist()[0] == HEAD_ROLES[1]
    assert head["has it"].tolist().count("yes") == 1
    assert counts["heads"].sum() == len(HEAD_ROLES) + len(TWO_ROLES)
    assert len(relations) == 8
    assert commands(app)[0] == "headlab roles --model e5-small-intents --language de --size 75"
    assert dict(app.table[1].value.to_numpy().tolist())["Task"] == "treebank"
    assert app.selectbox(key="roles-kind").value == "nsubj"


def test_a_head_with_two_roles_lists_both_and_one_with_none_says_so(cache):
    keep_report(cache, made_roles("de"))
    app = run(langs=["de"], head="encoder.1.1")
    assert all(f"{role}: " in html(app) for role in TWO_ROLES)
    choose(app, "head", "2.2")
    assert "It has none of the roles." in page_text(app)
    assert map_data(app)["selected"] == GRID.size - 1


def test_examples_are_text_whatever_stands_in_them(cache):
    keep_report(cache, made_roles("de"))
    app = run(langs=["de"], head="encoder.0.1")
    assert "Time &lt;b&gt;flies&lt;/b&gt; like an arrow ." in html(app)
    assert SENTENCE not in html(app)
    assert app.selectbox(key="roles-example-encoder.0.1").options == [
        "Head 0.1: nsubj: dependent to governor"
    ]
    row = {
        "right": False,
        "sentence": "s",
        "word": "<i>",
        "looks at": "a & b",
        "should look at": "c",
    }
    assert example_html(row).startswith(
        "<div><b>&lt;i&gt;</b> looks at <b>a &amp; b</b> (should be <b>c</b>)</div>"
    )


def test_reported_24_tokens_of_examples_can_be_seen():
    row = {"right": True, "sentence": "สี", "word": "ี[1/2]", "looks at": "\n", "should look at": ""}
    assert example_html(row).startswith("<div><b>◌ี[1/2]</b> looks at <b>↵</b></div>")


def test_a_report_without_trees_says_so_and_shows_the_rest(cache):
    keep_report(cache, made_roles("de", name="intents"))
    app = run(langs=["de"])
    assert "no relation of syntax could be looked for" in page_text(app)
    assert "This report was made without examples of sentences." in page_text(app)
    assert "(task intents, without syntax)" in page_text(app)
    assert commands(app)[0].startswith(
        "headlab roles --model e5-small-intents --task intents --language de"
    )


def test_reports_with_trees_of_the_model_s_own_weights_come_first_and_another_can_be_chosen(cache):
    key_with_trees = keep_report(cache, made_roles("de"), 1)
    key_of_texts = keep_report(cache, made_roles("de", name="intents"), 3)
    key_of_other_weights = keep_report(cache, made_roles("de", fingerprint="1" * 64), 4)
    app = run(langs=["de"])
    assert [option.split(",")[0] for option in app.selectbox(key="roles-report-de").options] == [
        "1 Nov 2026",
        "3 Nov 2026",
        "4 Nov 2026",
    ]
    assert app.selectbox(key="roles-report-de").value == key_with_trees
    choose(app, "roles-report-de", key_of_other_weights)
    assert "made with other weights (111111111111…)" in page_text(app)
    choose(app, "roles-report-de", key_of_texts)
    assert "no relation of syntax could be looked for" in page_text(app)


def test_reports_of_another_model_are_left_out(cache):
    keep_report(cache, made_roles("de", model="another"))
    assert "There is no report yet on what the heads of e5-small-intents do" in page_text(
        run(langs=["de"])
    )


def test_roles_are_the_models_whatever_task_their_sentences_are_of(cache):
    keep_report(cache, made_roles("de", name="xnli"), 2)
    assert "(task xnli, without syntax)" in page_text(run(langs=["de"]))
    keep_report(cache, made_roles("de", name="intents"), 1)
    assert "(task intents, without syntax)" in page_text(run(langs=["de"]))


def test_a_role_lets_its_heads_stand_out_and_be_switched_off(cache):
    keep_report(cache, made_roles("de", grid=LARGE))
    scores = made_scores("de", "shapley")
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    assert map_data(run(langs=["de"]))["chosen"] == -1
    app = run(langs=["de"], role="nsubj")
    kinds = [kind["name"] for kind in map_data(app)["kinds"]]
    assert kinds[map_data(app)["chosen"]] == "nsubj"
    assert "1 head: nsubj" in page_text(app)
    press(app, "role-actions-off")
    history = app.session_state[f"{HISTORY_KEY_PREFIX}{'0' * 64}"]
    (removed_head,) = history.mask.removed
    roles = read_roles(made_roles("de", grid=LARGE))
    assert roles.groups(removed_head) == ["nsubj"]
    assert history.mask.chosen == {"rule": "by hand", "role": "nsubj", "languages": ["de"]}


def keep_answers(cache, mask, right_count, split="test"):
    """Store made-up answers of the model to ten examples, of which the first ones are right."""
    scores = made_scores("de", "shapley")
    spec = {
        "format": scores.spec["format"],
        "kind": "answers",
        "model": scores.spec["model"],
        "task": {"name": "intents", "language": "de", "split": split, "size": 10, "seed": 0},
        "ablation": "zero",
    }
    names = tuple(map(str, range(10)))
    correct = np.arange(10) < right_count
    evaluation = Evaluation("de", correct, np.zeros(10, int), names, names, 10)
    run_folder = Store(cache).run(spec)
    run_folder.keep_answers(mask.digest, evaluation, np.ones(10, int))
    return run_folder


def test_a_role_says_what_is_lost_without_its_heads_where_that_is_stored(cache):
    keep_report(cache, made_roles("de", grid=LARGE))
    scores = made_scores("de", "shapley")
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    roles = read_roles(made_roles("de", grid=LARGE))
    is_kept = np.array(["nsubj" not in roles.groups(head) for head in roles.grid.heads])
    mask = Mask(roles.grid, is_kept)
    assert "Without it" not in page_text(run(langs=["de"], role="nsubj"))
    keep_answers(cache, mask, 2, "dev")
    keep_answers(cache, full_mask(roles.grid), 8, "dev")
    assert "Without it, intents 80.0 → 20.0\u00a0% on dev** (10 examples)" in page_text(
        run(langs=["de"], role="nsubj")
    )
    keep_answers(cache, full_mask(roles.grid), 9)
    run_folder = keep_answers(cache, mask, 1)  # scores are made on dev, so test is told
    assert "Without it, intents 90.0 → 10.0\u00a0% on test" in page_text(
        run(langs=["de"], role="nsubj")
    )
    (run_folder.folder / f"{mask.digest}.npz").write_bytes(b"torn")
    assert "on dev" in page_text(run(langs=["de"], role="nsubj"))


def test_a_role_of_a_link_that_no_head_has_says_so(cache):
    keep_report(cache, made_roles("de"))
    app = run(langs=["de"], role="induction")
    assert "No head of this report has the role 'induction'" in page_text(app)
    assert map_data(app)["chosen"] == -1


def test_heads_of_a_report_are_switched_off_only_where_the_models_heads_are_known(cache):
    keep_report(cache, made_roles("de", grid=LARGE))
    app = run(langs=["de"], role="nsubj")
    assert "This report may not have all heads of the model" in page_text(app)
    assert not [button for button in app.button if button.key == "role-actions-off"]


def test_a_mask_of_a_reports_heads_is_one_of_the_whole_model():
    """A report on the encoder of a translation model knows nothing of the decoder's heads."""
    spec = made_roles("de").spec
    whole_grid = HeadGrid((*GRID.stacks, Stack("decoder", (4, 4))))
    mask = mask_without([GRID.heads[2]], whole_grid, spec, {"role": "nsubj"})
    assert mask.grid == whole_grid
    assert mask.removed == (GRID.heads[2],)
    assert mask.model["fingerprint"] == "0" * 64
    assert mask_without([GRID.heads[2]], None, spec, {}) is None
    assert mask_without([Head("decoder", 9, 9)], whole_grid, spec, {}) is None


def test_a_report_of_other_weights_switches_nothing_off(cache):
    keep_report(cache, made_roles("de", grid=LARGE, fingerprint="1" * 64))
    for weights in ("0" * 64, "1" * 64):
        scores = made_scores("de", "shapley", weights)
        Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    app = run(langs=["de"], role="nsubj")
    assert "opens once that model is chosen" in page_text(app)
    assert app.button(key="role-actions-off").disabled


def test_a_press_on_the_legend_chooses_a_role_or_none():
    chosen: list[str] = []
    for number in (1, -1, 99, "x", None):
        stored_roles.press_group(["positional", "nsubj"], chosen.append, number)
    assert chosen == ["nsubj", ""]


def test_a_language_that_the_task_does_not_have_is_shown_where_it_has_a_report(cache):
    for language in ("de", "hi"):
        keep_report(cache, made_roles(language))
    app = run(langs=["de"])
    assert app.selectbox(key="focus").options == ["de", "hi"]
    choose(app, "focus", "hi")
    assert map_data(app)["title"] == "Hindi (hi)"
    app.switch_page("pages/heads.py").run()
    assert not app.exception
    app.switch_page("pages/roles.py").run()
    assert not app.exception
    assert run(langs=["de"], focus="tlh").selectbox(key="focus").value == "de"


def test_a_map_of_several_stacks_names_them(cache):
    grid = HeadGrid(
        (
            Stack("encoder", (4, 4)),
            Stack("decoder", (4, 4)),
            Stack("cross", (4, 4)),
        )
    )
    keep_report(cache, made_roles("de", grid=grid))
    app = run(langs=["de"], head="cross.1.2")
    assert map_data(app)["stacks"][2] == {"name": "cross", "heads": [4, 4], "together": []}
    assert "Head cross.1.2" in page_text(app)


# By language.


def test_heads_with_a_role_are_followed_into_other_languages():
    english = read_roles(made_roles("en"))
    hindi = read_roles(made_roles("hi", seed=1, shift=1))
    comparison = compare_languages({"hi": hindi, "en": english}, "en", "nsubj")
    assert comparison.languages == ["en", "hi"]
    (compared_row,) = comparison.rows
    assert compared_row.head == GRID.heads[1]
    assert compared_row.role == HEAD_ROLES[1]
    shares = []
    for roles in (english, hindi):
        row_by_head_and_role = {(row.head, row.role): row for row in roles.rows}
        role_row = row_by_head_and_role[GRID.heads[1], HEAD_ROLES[1]]
        shares.append(role_row.numbers["share, %"])
    assert comparison.share.tolist() == [shares]
    assert comparison.has.tolist() == [[True, False]]
    table = across_table(comparison, "en", "nsubj")
    assert table.columns == (
        "stack",
        "layer",
        "head",
        "role",
        "languages with it",
        "en, %",
        "hi, %",
    )
    assert table.rows == (("encoder", 0, 1, HEAD_ROLES[1], 1, *shares),)


def test_a_position_is_compared_with_the_same_offset_only():
    english = read_roles(made_roles("en"))
    hindi_report = made_roles("hi", seed=1)
    hindi = read_roles(with_cell(hindi_report, "roles", "role", "position +1"))
    comparison = compare_languages({"en": english, "hi": hindi}, "en", "positional")
    assert comparison.has.tolist() == [[True, False]]
    assert np.isnan(comparison.share[0, 1])
    assert across_table(comparison, "en", "positional").rows[0][-1] is None
    figure = roles_across_languages(
        comparison.above, comparison.share, comparison.has, ["0.0"], comparison.languages
    )
    assert figure.data[0].customdata[0][1] == "–"
    assert figure.data[0].customdata[0][0].endswith("●")


def test_the_caption_names_languages_without_a_value_and_says_where_the_numbers_are():
    row = read_roles(made_roles("en")).rows[0]

    def roles_with_shares(values):
        share = np.array([values])
        names = [f"l{number}" for number in range(len(values))]
        return RolesAcrossLanguages([row], names, share, share, np.zeros(share.shape, bool))

    few_languages = roles_with_shares([50.0, np.nan, 20.0, np.nan])
    many_languages = roles_with_shares([50.0] * 11)
    assert few_languages.only_tested.languages == ["l0", "l2"]
    assert few_languages.only_tested.share.tolist() == [[50.0, 20.0]]
    assert reading_caption(few_languages).startswith("Numbers are shares in percent; a dot")
    assert reading_caption(few_languages).endswith(
        "Reports without a value for these heads are not drawn: l1, l3."
    )
    assert reading_caption(many_languages).startswith("Point at a cell for its share; a dot")
    assert "not drawn" not in reading_caption(many_languages)
    figure = roles_across_languages(
        many_languages.above,
        many_languages.share,
        many_languages.has,
        ["0.0"],
        many_languages.languages,
    )
    assert figure.layout.xaxis.dtick == 1  # every language has its label


def test_one_language_alone_says_that_others_are_needed_and_two_are_compared(cache):
    keep_report(cache, made_roles("de"))
    assert "Only German (de) has a report" in page_text(run(langs=["de"]))
    keep_report(cache, made_roles("th", seed=1, shift=1))
    app = run(langs=["de", "th"])
    assert "Only German" not in page_text(app)
    across_table = next(
        frame.value for frame in app.dataframe if "languages with it" in frame.value.columns
    )
    assert across_table.columns.tolist()[-2:] == ["de, %", "th, %"]
    choose(app, "roles-kind", "separator")


def test_a_report_in_which_no_head_has_a_role_is_not_blank(cache):
    report = made_roles("de")
    table = report.table("roles")
    assert table.columns[-1] == "has it"
    rows_without_role = [(*row[:-1], False) for row in table.rows]
    without_roles = with_rows(report, "roles", rows_without_role)
    for table in report.tables:
        if table.name not in ("roles", "measures"):
            without_roles = with_rows(without_roles, table.name, [])
    keep_report(cache, without_roles)
    app = run(langs=["de"])
    assert "No head has a role in German (de)." in page_text(app)
    assert "It has none of the roles." in page_text(app)
    assert set(map_data(app)["shown"]) == {""}


# After pruning.


def test_roles_of_the_heads_that_are_left_are_stacked_size_by_size(cache):
    # The most helpful head, 9.0, is positional.
    keep_report(cache, made_roles("de", grid=LARGE, shift=HELPFUL))
    scores = made_scores("de", "shapley")
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    app = run(langs=["de", "th"])
    table = next(frame.value for frame in app.dataframe if "heads left" in frame.value.columns)
    positional_rows = table[table["role"] == "positional"]
    assert positional_rows["heads"].tolist() == [1] * 12
    assert set(table["heads left"]) == set(range(144, 0, -12))
    assert "By shapley scores of German (de)." in page_text(app)


def test_scores_of_another_model_s_heads_are_mentioned_but_not_drawn(cache):
    keep_report(cache, made_roles("de"))
    scores = made_scores("de", "shapley", "1" * 64)
    Store(cache).run(scores.spec).finish(scores, {"versions": {}})
    assert "These scores cannot order the heads of this report" in page_text(run(langs=["de"]))


def test_without_scores_the_page_offers_to_compute_them(cache):
    keep_report(cache, made_roles("de"))
    app = run(langs=["de"])
    assert "none are cached for the chosen languages" in page_text(app)
    assert "compute" in {button.key for button in app.button}


def test_a_job_under_way_has_one_bar_whatever_else_the_page_offers(worker, cache):
    keep_report(cache, made_roles("de"))
    worker.rows = [
        job_row(
            1,
            "running",
            kind="roles",
            params=form_job(languages=["th"]).params(),
        )
    ]
    app = run(langs=["de", "th"])
    assert [button.key for button in app.button].count("cancel-1") == 1
    assert "compute" in {button.key for button in app.button}


def test_bars_hold_the_counts_in_the_legend_s_order_and_a_second_direction_is_hatched():
    counts = {
        "separator": [2, 0],
        HEAD_ROLES[1]: [3, 1],
        "nsubj: governor to dependent": [1, 1],
        "none of these": [5, 2],
    }
    figure = roles_by_size_figure([8, 4], counts, "heads")
    assert {bar.name: list(bar.y) for bar in figure.data} == counts
    assert [bar.name for bar in figure.data] == [
        HEAD_ROLES[1],
        "nsubj: governor to dependent",
        "separator",
        "none of these",
    ]
    assert [bar.marker.pattern.shape for bar in figure.data] == [None, "/", None, None]
    nsubj_colour = LOOKS["nsubj"].colour
    assert figure.data[0].marker.color == nsubj_colour
    assert figure.data[1].marker.color == nsubj_colour
    table = Table(
        "x",
        "X",
        ("heads left", "role", "heads"),
        ("d", "", "d"),
        ((8, "a", 3), (8, "b", 1), (4, "a", 2)),
    )
    assert role_counts_by_size(table) == (
        [8, 4],
        {"a": [3, 2], "b": [1, 0]},
    )
    assert shown_sizes(3) == [3, 2, 1, 0]
    assert shown_sizes(24)[:3] == [24, 22, 20]
    assert len(shown_sizes(144)) == 12


# Without reports.


def trees_of(folder: Path, *languages: str) -> str:
    (folder / "ud").mkdir(parents=True)
    for language in languages:
        (folder / "ud" / f"{language}.dev.conllu").write_text(TREE)
    return str(folder)


def test_without_a_report_the_page_says_what_one_costs_and_starts_it(worker, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADLAB_DATA", trees_of(tmp_path / "data", "de", "hi"))
    app = run(langs=["de", "th"])
    assert (
        "There is no report yet on what the heads of e5-small-intents do in these languages."
        in page_text(app)
    )
    assert "**German (de)**: gold trees of their treebanks" in page_text(app)
    assert "**Thai (th)**: the texts of task intents, without syntax" in page_text(app)
    assert "No treebank here for Thai (th);" in page_text(app)
    assert page_text(app).count("What it will take: **About 2 min**") == 2
    assert commands(app)[0].splitlines() == [
        "headlab roles --model e5-small-intents --language de",
        "headlab roles --model e5-small-intents --task intents --language th",
    ]
    app.number_input(key="roles-plan-size").set_value(100)
    press(app, "roles-start-treebank")
    (roles_job,) = submitted_jobs(worker)
    spec = roles_job.params
    assert roles_job.kind == "roles"
    assert roles_job.place == "here"
    assert spec["task"] is None
    assert spec["languages"] == ["de"]
    assert spec["source"] == "treebank"
    assert spec["size"] == 100
    assert "Job 1 is in the queue." in page_text(app)
    assert "cancel-1" in {str(button.key) for button in app.button}
    worker.change(1, state="done")
    keep_report(tmp_path / "cache", made_roles("de"))
    app.run()
    assert map_data(app)["title"] == "German (de)"


def test_a_treebank_s_language_can_be_chosen_though_the_task_does_not_have_it(
    worker, tmp_path, monkeypatch
):
    monkeypatch.setenv("HEADLAB_DATA", trees_of(tmp_path / "data", "hi"))
    app = run(langs=["de"])
    languages = app.multiselect[0]
    assert "Hindi (hi)" in languages.options
    languages.set_value(["hi"]).run()
    press(app, "roles-start-treebank")
    assert submitted_jobs(worker)[0].params["languages"] == ["hi"]
    choose(app, "roles-plan-source", TASK_SOURCE)
    assert "Task intents has no texts in Hindi (hi)" in page_text(app)


def test_thresholds_are_those_of_the_library_and_what_is_set_is_in_the_job_and_the_command(worker):
    app = run(langs=["de"])
    assert app.number_input(key="roles-plan-positional").value == OPTIONS["positional"].default
    app.number_input(key="roles-plan-positional").set_value(0.8)
    choose(app, "roles-plan-split", "test")
    assert commands(app)[0].endswith("--language de --split test -o positional=0.8")
    app.switch_page("pages/overview.py").run()
    app.switch_page("pages/roles.py").run()
    assert app.number_input(key="roles-plan-positional").value == 0.8
    assert app.selectbox(key="roles-plan-split").value == "test"
    press(app, "roles-start-task")
    assert submitted_jobs(worker)[-1].params["options"]["positional"] == 0.8


def test_without_a_language_the_page_asks_for_one(worker):
    app = run(langs=[""])
    assert "No language is chosen." in page_text(app)
    assert not [button for button in app.button if str(button.key).startswith("roles-start")]


def test_without_a_worker_reports_are_shown_and_the_rest_says_so(cache):
    keep_report(cache, made_roles("de"))
    with app_on(cache):
        app = run(langs=["de", "th"])
    assert map_data(app)["title"] == "German (de)"
    assert "not known, as no worker could be asked" in page_text(app)


@pytest.mark.parametrize("damage", ["torn", "empty", "older"])
def test_a_report_that_cannot_be_read_is_a_sentence(cache, damage):
    report = made_roles("de")
    if damage == "older":
        report = without_table(report, "measures")
    key = keep_report(cache, report)
    path = cache / key / "result.npz"
    data = path.read_bytes()
    damaged_data = {"torn": data[:200], "empty": b"", "older": data}
    path.write_bytes(damaged_data[damage])
    app = run(langs=["de"])
    assert "1 report was skipped" in labels(app)
    assert key[:12] in page_text(app)
    assert "There is no report yet" in page_text(app)


def test_a_task_s_texts_are_refused_where_the_worker_refuses(worker, monkeypatch):
    def refuse(*_: Any, **__: Any) -> Any:
        raise HeadlabError("the worker has no treebank of th, it has none", code="treebank.missing")

    monkeypatch.setattr(worker, "forecast", refuse)
    monkeypatch.setattr(worker, "submit", refuse)
    app = run(langs=["th"])
    assert "the worker has no treebank of th, it has none" in page_text(app)
    press(app, "roles-start-task")
    assert "the worker has no treebank of th" in shown_text(app.error[0])


# Jobs.


def form_job(source: str = TREEBANK_SOURCE, **fields: Any) -> RolesJob:
    (request,) = roles_requests(CHOICE, ["de"], ["de"], ["de", "th"], source)
    return request.job({}).model_copy(update=fields)


def test_a_job_has_a_title_details_and_its_command(worker):
    row = job_row(1, "failed", kind="roles", params=form_job().params(), error="it broke")
    assert job_format.job_title(row) == "Roles of heads for German (de)"
    assert job_format.describe_job(row) == "roles for de"
    assert ("Source", "treebank") in job_format.job_details(row)
    assert command_lines(row) == "headlab roles --model e5-small-intents --language de"


def test_a_finished_job_opens_its_roles(worker, cache):
    keep_report(cache, made_roles("hi"))
    keep_report(cache, made_roles("de"))
    worker.rows = [
        job_row(
            1,
            "done",
            kind="roles",
            params=form_job(languages=["hi"]).params(),
            result={"keys": ["x"]},
        )
    ]
    app = run("jobs", job="1", langs=["th"])
    press(app, "results-roles")
    assert app.title[0].value == "Roles"
    assert map_data(app)["title"] == "Hindi (hi)"


def test_the_command_of_a_report_is_that_of_its_job():
    report_job = job_that_makes("report", made_roles("de").spec)
    assert report_job.params() == form_job(size=75).params()
    everywhere = report_job.model_copy(update={"languages": ["de", "th"], "size": None})
    assert everywhere.terminal_lines().count("\n") == 1
    without_examples = form_job(options={"examples": 0, "exclude": "none"})
    assert without_examples.terminal_lines().endswith("-o examples=0 -o exclude=none")
    of_file = form_job(split="file").terminal_lines()
    assert "--conllu FILE" in of_file
    assert "--split" not in of_file


def test_text_from_a_file_is_shown_as_it_is_written(cache):
    report = made_roles("de")
    keep_report(cache, dataclasses.replace(report, notes=("cut: ![x](http://host/y) *s*",)))
    shown_notes = [
        element.value for element in run(langs=["de"]).markdown if "cut" in element.value
    ]
    assert shown_notes == [r"- cut\: !\[x\](http\://host/y) \*s\*"]


def test_the_command_line_knows_what_the_page_writes():
    roles_command = get_command(build()).commands["roles"]
    roles_job = form_job(
        TREEBANK_SOURCE, size=64, split="test", options={"margin": 0.2, "examples": 0}
    )
    command_words = shlex.split(roles_job.terminal_lines())
    known_flags = set()
    for parameter in roles_command.params:
        known_flags.update(parameter.opts)
    assert {word for word in command_words if word.startswith("-")} <= known_flags
    context = roles_command.make_context("roles", command_words[2:], resilient_parsing=True)
    assert context.params["split"] == "test"
    assert context.params["size"] == 64
    assert context.params["task"] is None
    assert parse_options(context.params["option"], OPTIONS) == {"margin": 0.2, "examples": 0}


def test_a_click_chooses_its_head_and_other_values_are_ignored():
    clicked_heads: list[Head] = []
    press = head_press_action(GRID, clicked_heads.append)
    for value in (5, GRID.size, -1, None, "5"):
        press(value)
    assert clicked_heads == [GRID.heads[5]]
    head_press_action(GRID, None)(5)
