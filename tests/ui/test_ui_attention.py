"""Attention as pictures: what reaches the page is escaped, cut to a length and loads nothing."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest
import streamlit as st
from PIL import Image
from reference import largest_link, mean_of_links, word_weights
from support.app_pages import page_text, run_page
from support.cached_scores import GRID, made_scores
from support.expected_errors import raises
from support.page_actions import choose, press

from headlab.core import Head, HeadGrid, Stack
from headlab.dashboard.pages.attention.answers import answer_rows
from headlab.dashboard.pages.attention.elsewhere import links_caption, links_table
from headlab.dashboard.pages.attention.heads import heads_of_link
from headlab.dashboard.pages.attention.next_tokens import next_token_table, summary_sentence
from headlab.dashboard.pages.attention.pictures import (
    SHADE,
    head_view,
    package_file,
    shaded_file,
    shading,
    strongest_links,
    weights_table,
)
from headlab.dashboard.pages.attention.views import ViewOptions, caveats, framing
from headlab.dashboard.panels.heads.attended_sentences import (
    MAX_HEADS,
    MAX_OFFERED_SENTENCES,
    MAX_TEXT_CHARACTERS,
    ShownSentence,
    label_examples_by_title,
    typed_sentence,
)
from headlab.dashboard.panels.heads.changed_answers import attention_params
from headlab.dashboard.panels.heads.strongest_links import (
    MAX_TEXT_LENGTH,
    ReadSentences,
    rank_sentences,
)
from headlab.dashboard.panels.masks.mask_figures import AccuracyQuestion
from headlab.masks import Mask
from headlab.pictures import colour_on_scale, map_of_scores, maps_of_scores
from headlab.plots.matrices import (
    GIVEN,
    INDUCTION,
    LINKS,
    MAX_SHOWN_TOKENS,
    NEXT,
    PREVIOUS,
    SAME,
    Panel,
    attention_map,
    links_of_kind,
    special_token_texts,
    strongest_link,
)
from headlab.report.maps import map_of_pictures
from headlab.worker import schemas
from headlab.worker.schemas import Answer, ExampleCard, NextToken, TaskCard, Weights

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "</script><script>parent.document.title='PWNED'</script>"
NAMES = {"encoder.3.7": "Layer 3, head 7", "encoder.0.1": "<i>Layer 0</i>"}


def random_weights(tokens, heads=("encoder.3.7",), is_truncated=False, **fields):
    """The worker's weights of one sentence: random, the same for each head."""
    token_count = len(tokens)
    weights = np.random.default_rng(token_count).dirichlet(np.ones(token_count), token_count)
    return Weights(
        tokens=list(tokens),
        weights={head: weights.round(3).tolist() for head in heads},
        truncated=is_truncated,
        **fields,
    )


def random_panel(*tokens, heads=("encoder.3.7",), title="German (de)"):
    return Panel.from_attention(title, random_weights(tokens, heads))


class Tags(HTMLParser):
    """Tags, attributes and scripts of a page, as a browser would read them."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags = []
        self.scripts = []
        self.text = ""
        self._in = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data

    def count(self, tag):
        return sum(t == tag for t, _ in self.tags)


def test_a_token_cannot_open_or_close_an_element_in_any_view():
    evil = random_panel("a", EVIL, "<!--", "&amp;", title=EVIL)
    page = Tags(head_view([evil], {"encoder.3.7": EVIL}))
    assert page.count("script") == 4  # jQuery, d3, the stand-in for RequireJS, BertViz
    assert page.text.count(EVIL) == 2  # title and head's name, as text
    bertviz_input = json.loads(bertviz_params(page.scripts[-1]))["attention"]["0"]
    assert bertviz_input["left_text"] == ["a", EVIL, "<!--", "&amp;"]
    shaded_sentence = Tags(shading(evil, {"encoder.3.7": EVIL}))
    assert {tag for tag, _ in shaded_sentence.tags} <= {"p", "b", "span"}
    assert EVIL in shaded_sentence.text


def bertviz_params(script):
    return re.search(r"const params = (\{.*\}); // HACK", script).group(1)


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_load():
    panels = [
        random_panel("a", "b"),
        random_panel("c", "d", "e"),
    ]
    page = Tags(head_view(panels, NAMES))
    policy = next(
        attrs["content"]
        for tag, attrs in page.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    allowed_scripts = re.search("script-src ([^;]*)", policy).group(1).split()
    script_hashes = []
    for script in page.scripts:
        digest = hashlib.sha256(script.encode()).digest()
        script_hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    assert allowed_scripts == script_hashes
    for _, attrs in page.tags:
        assert not {"src", "href", "onclick", "onerror"} & set(attrs)


def test_bertviz_gets_only_the_chosen_heads_rounded():
    panel = random_panel("a", "b", "c", heads=("encoder.3.7", "encoder.0.1"))
    page = Tags(head_view([panel], NAMES))
    params = json.loads(bertviz_params(page.scripts[-1]))
    attention = np.array(params["attention"]["0"]["attn"])
    assert attention.shape == (1, 2, 3, 3)
    assert np.array_equal(attention, attention.round(3))
    assert params["heads"] == [0, 1]
    assert params["include_layers"] == [0]
    assert params["root_div_id"] == "bertviz-0"


def test_a_long_sentence_is_cut_and_says_so():
    long_panel = random_panel(*(f"t{i}" for i in range(MAX_SHOWN_TOKENS + 9)))
    assert len(long_panel.tokens) == MAX_SHOWN_TOKENS
    assert long_panel.weights["encoder.3.7"].shape == (MAX_SHOWN_TOKENS, MAX_SHOWN_TOKENS)
    assert long_panel.is_cut
    assert not random_panel("a", "b").is_cut
    assert Panel.from_attention("x", random_weights(["a"], is_truncated=True)).is_cut


def test_64_tokens_of_one_head_stay_small():
    tokens = [f"t{i}" for i in range(64)]
    page_of_64_tokens = head_view([random_panel(*tokens)], NAMES)
    page_of_one_token = head_view([random_panel("a")], NAMES)
    assert len(page_of_64_tokens) - len(page_of_one_token) < 60_000


def test_weights_over_another_sequence_are_refused():
    wrong = Weights(
        tokens=["a", "b"], weights={"cross.0.0": [[0.1, 0.2, 0.7]] * 2}, truncated=False
    )
    with raises("head.not_one_sequence", "cross.0.0"):
        Panel.from_attention("x", wrong)


def test_the_weight_on_special_tokens_is_given_by_token_with_largest_weights_and_ties():
    rows = np.array(
        [
            [0.1, 0.2, 0.7],
            [0.5, 0.0, 0.5],
            [0.2, 0.6, 0.2],
        ]
    )
    weights = {
        "h": rows,
        "g": rows[:, [1, 0, 2]],
    }
    german = Panel("German", ("<s>", "a", "</s>"), weights, special=(0, 2))
    assert german.on_special("h") == pytest.approx({"<s>": 0.8 / 3, "</s>": 1.4 / 3})
    assert german.largest_on_special("h") == (2, 0)
    assert german.largest_on_special("g") == (2, 1)
    thai = dataclasses.replace(german, title="Thai", tokens=("</s>", "a", "</s>"))
    assert thai.on_special("h") == pytest.approx({"</s>": 2.2 / 3})
    texts = special_token_texts([german, thai], {"h": "Layer 1"})
    assert texts[0] == (
        "Layer 1: German 73\u00a0% (<s> 27\u00a0%, </s> 47\u00a0%), 2 of 3 tokens give one their largest weight; "
        "Thai 73\u00a0% (</s> 73\u00a0%), 2 of 3 tokens give one their largest weight"
    )
    assert "2 of 3 tokens give one their largest weight, 1 in a tie" in texts[1]
    assert special_token_texts([dataclasses.replace(german, special=())], {}) == []


def test_a_special_token_behind_the_cut_is_left_out():
    tokens = [f"t{i}" for i in range(MAX_SHOWN_TOKENS + 9)]
    weights = random_weights(tokens, special=[3, MAX_SHOWN_TOKENS + 8])
    assert Panel.from_attention("x", weights).special == (3,)


def test_each_head_can_have_a_picture_of_its_own_a_sentence_a_row():
    heads = ("encoder.3.7", "encoder.0.1")
    german = random_panel("a", "b", heads=heads, title="German")
    thai = random_panel("a", "b", heads=heads, title="Thai")
    page = Tags(
        head_view(
            [*german.heads(), *thai.heads()],
            NAMES,
            panels_in_row=2,
        )
    )
    classes = [attrs.get("class") for tag, attrs in page.tags if tag == "div"]
    rows_and_panels = [name for name in classes if name in ("row", "panel")]
    assert rows_and_panels == ["row", "panel", "panel", "row", "panel", "panel"]
    bertviz_inputs = [json.loads(bertviz_params(script)) for script in page.scripts[3:]]
    shapes = [np.shape(params["attention"]["0"]["attn"]) for params in bertviz_inputs]
    assert shapes == [(1, 1, 2, 2)] * 4


def test_shading_is_by_share_of_the_largest_weight():
    rows = np.array(
        [
            [0.1, 0.2, 0.7],
            [0.5, 0.25, 0.25],
            [0.0, 0.0, 1.0],
        ]
    )
    panel = Panel("x", ("a", "b", "c"), {"h": rows})
    html = shading(panel, {}, query=1)
    assert [float(s) for s in re.findall(r'title="([\d.]+)"', html)] == [0.5, 0.25, 0.25]
    assert re.findall(r"#2478c8 (\d+)%", html) == ["70", "35", "35"]
    assert html.count("2px solid") == 1
    mean_html = shading(panel, {})
    assert [float(s) for s in re.findall(r'title="([\d.]+)"', mean_html)] == [0.2, 0.15, 0.65]


def test_the_table_holds_every_weight_even_where_tokens_repeat():
    panel = random_panel("the", "the", "cat")
    frame = weights_table(panel, "encoder.3.7")
    assert frame.shape == (3, 3)
    assert np.array_equal(frame.to_numpy(), panel.weights["encoder.3.7"])
    assert frame.columns.is_unique


def test_the_strongest_links_are_the_largest_weights_in_order():
    rows = np.array([[0.1, 0.9], [0.6, 0.4]])
    panel = Panel("x", ("a", "b"), {"h": rows})
    frame = strongest_links(panel, {"h": "H"}, top=2)
    assert frame.to_numpy().tolist() == [
        ["H", "a", "b", 0.9],
        ["H", "b", "a", 0.6],
    ]


def test_a_missing_package_gives_the_command_to_run():
    with raises("package.bertviz_missing", "pip install XStatic-Nothing"):
        package_file("XStatic-Nothing", "nothing.js")


def test_heads_of_a_link_that_do_not_exist_are_named():
    grid = HeadGrid((Stack("encoder", (2, 2)),))
    heads, wrong = heads_of_link(grid, ["encoder.1.1", "encoder.9.0", "nonsense"])
    assert heads == [Head("encoder", 1, 1)]
    assert "9" in wrong
    assert "nonsense" in wrong
    assert heads_of_link(grid, ["encoder.0.0"]) == ([Head("encoder", 0, 0)], None)


@pytest.mark.parametrize(
    ("line", "text", "pair"),
    [
        ("licht an", "licht an", None),
        ("it rains ||| it is wet", "it rains", "it is wet"),
        ("a ||| b ||| c", "a", "b ||| c"),
        ("||| b", "||| b", None),
        ("a|||", "a|||", None),
    ],
)
def test_a_typed_line_is_a_sentence_or_a_pair(line, text, pair):
    assert typed_sentence("Line 1", line) == ShownSentence("Line 1", text, pair)


@pytest.mark.parametrize("pair", [None, float("nan"), "so it\nis wet"])
def test_a_changed_answer_leads_to_its_sentence_with_the_heads_that_are_off(pair):
    kept_heads = np.arange(12) > 8
    grid = HeadGrid((Stack("encoder", (4, 4, 4)),))
    mask = Mask(grid, kept_heads, {"name": "m", "fingerprint": "f" * 64})
    question = AccuracyQuestion.unchecked("m", "f" * 64, "xnli", "dev", mask)
    link = attention_params({"text": "it  rains", "pair": pair}, question)
    removed_heads = [f"encoder.{index // 4}.{index % 4}" for index in range(9)]
    assert link["heads"] == removed_heads[:MAX_HEADS]
    assert link["view"] == "BertViz"  # which draws them all
    second_text = "so it is wet" if isinstance(pair, str) else None
    assert typed_sentence("", link["text"])[1:3] == ("it rains", second_text)
    link_of_long_text = attention_params({"text": "x" * 5000, "pair": None}, question)
    assert len(link_of_long_text["text"]) == MAX_TEXT_CHARACTERS


# Options that change the attention before it is shown.


def panel_in_pieces(weights, word_of_token=(-1, 0, 0, 1, 2, 2, 2, -1)):
    tokens = ("<s>", "▁Kü", "che", "▁an", "▁", "lam", "pe", "</s>")
    return Panel(
        "German",
        tokens,
        {"h": weights},
        special=(0, 7),
        words=("Küche", "an", "lampe"),
        word_indices=word_of_token,
    )


def test_words_instead_of_pieces_are_those_of_the_slow_derivation_and_rows_still_sum_to_one(rng):
    weights = rng.dirichlet(np.ones(8), 8)
    in_pieces = panel_in_pieces(weights)
    in_words = in_pieces.in_words()
    assert in_words.tokens == ("<s>", "Küche", "an", "lampe", "</s>")
    assert in_words.special == (0, 4)
    slow_weights = word_weights(weights, list(in_pieces.word_indices))
    np.testing.assert_allclose(in_words.weights["h"], slow_weights, atol=0.0005)
    np.testing.assert_allclose(in_words.weights["h"].sum(axis=1), 1, atol=0.003)
    one_word = panel_in_pieces(weights, (-1, 0, 0, 0, 0, 0, 0, -1))
    one_word = dataclasses.replace(one_word, title="two words")
    assert one_word.in_words() is one_word  # to the tokenizer, the whole text is one word
    assert ViewOptions(words=True).applied_to(one_word) is one_word
    hello = dataclasses.replace(one_word, title="Hello", words=("Hello",)).in_words()
    assert hello.tokens == ("<s>", "Hello", "</s>")
    without_words = dataclasses.replace(one_word, title="Hello", words=(), word_indices=())
    assert without_words.in_words().tokens == one_word.tokens


def test_a_sentence_of_special_tokens_alone_stays_when_they_are_hidden(rng):
    weights = {"h": rng.dirichlet(np.ones(2), 2)}
    only_special = Panel("", ("<s>", "</s>"), weights, special=(0, 1))
    assert ViewOptions(hide=True).applied_to(only_special).tokens == ("<s>", "</s>")


def test_equal_texts_are_distinguished_by_their_second_text():
    def example_card(text, pair, label="yes"):
        return ExampleCard(id="1", text=text, pair=pair, label=label)

    rows = [
        example_card("A", "B"),
        example_card("A", "C"),
        example_card("D", None),
        example_card("A", "E", "no"),
    ]
    examples_by_title = label_examples_by_title(rows, "yes")
    second_texts = {title: row.pair for title, row in examples_by_title.items()}
    assert second_texts == {"A": "B", "A ||| C": "C", "D": None}


def test_special_tokens_are_left_out_without_renormalising_and_the_mean_is_one_more_head(rng):
    weights = rng.dirichlet(np.ones(8), 8)
    other_weights = rng.dirichlet(np.ones(8), 8)
    two_heads = {"h": weights, "g": other_weights}
    panel = dataclasses.replace(panel_in_pieces(weights), weights=two_heads)
    shown_panel = ViewOptions(hide=True, mean=True).applied_to(panel)
    assert shown_panel.tokens == panel.tokens[1:-1]
    np.testing.assert_array_equal(shown_panel.weights["h"], weights[1:-1, 1:-1])
    mean_weights = (weights + other_weights) / 2
    np.testing.assert_allclose(shown_panel.weights["mean"], mean_weights[1:-1, 1:-1], atol=0.0005)
    notes = caveats([panel], [shown_panel], ViewOptions(hide=True))
    assert any("a row may sum to less than 1" in sentence for sentence in notes)
    shown_words = ViewOptions(hide=True, words=True).applied_to(panel)
    slow_weights = np.array(word_weights(weights, list(panel.word_indices)))
    np.testing.assert_allclose(shown_words.weights["h"], slow_weights[1:-1, 1:-1], atol=0.0005)
    mean_of_one_head = ViewOptions(mean=True).applied_to(panel_in_pieces(weights))
    assert list(mean_of_one_head.weights) == ["h"]


def test_invisible_characters_are_written_by_code_and_arabic_runs_from_right_to_left():
    evil = random_panel("<s>", "a\u202eb", "\x07", "c\u200dd")
    assert evil.tokens == ("<s>", "a[U+202E]b", "[U+0007]", "c[U+200D]d")
    arabic = Panel.from_attention(
        "Arabic",
        random_weights(["<s>", "▁أطفئ", "▁ABC", "</s>"], special=[0, 3]),
    )
    assert arabic.rtl
    assert not evil.rtl
    assert 'dir="rtl"' in shading(arabic, {})
    assert attention_map(arabic, "encoder.3.7").layout.xaxis.autorange == "reversed"
    axis = attention_map(evil, "encoder.3.7").layout.xaxis
    assert axis.autorange is True
    assert axis.ticktext[:2] == ("&lt;s&gt;", "a[U+202E]b")


def test_a_shaded_sentence_is_saved_as_it_is_shown_escaped_and_from_right_to_left():
    rows = np.array(
        [
            [0.1, 0.2, 0.7],
            [0.5, 0.25, 0.25],
            [0.0, 0.0, 1.0],
        ]
    )
    panel = Panel("x", ("<s>", "أ", EVIL), {"h": rows}, special=(0,))
    svg = ET.fromstring(shaded_file(panel, {"h": "Layer 1"}, 1))
    text_nodes = list(svg.iter(f"{SVG}text"))
    assert [node.text for node in text_nodes] == ["Layer 1, darkest: 0.50", *panel.tokens]
    assert float(text_nodes[1].get("x")) > float(text_nodes[2].get("x"))
    _, *chips = svg.iter(f"{SVG}rect")
    assert [float(chip.get("stroke-width")) for chip in chips] == [1, 2, 1]
    scale = ((0, "#ffffff"), (1, SHADE))
    colours = [colour_on_scale(scale, share) for share in (0.7, 0.35, 0.35)]
    assert [chip.get("fill") for chip in chips] == colours


def test_all_heads_are_saved_with_a_picture_each():
    scores = made_scores("de", "shapley", "0" * 64)
    pictures = [f"data:image/png;base64,{n}" for n in range(GRID.size)]
    svg = ET.fromstring(map_of_pictures(map_of_scores(scores), pictures, "all"))
    assert [node.get("href") for node in svg.iter(f"{SVG}image")] == pictures
    assert svg.find(f"{SVG}style") is not None


# Answers with the heads on and off.


def on_off_answer(answer_on, p_on, answer_off, p_off, word=None):
    return Answer(word=word, on=answer_on, p_on=p_on, off=answer_off, p_off=p_off)


@pytest.mark.parametrize(
    ("right_labels", "answer", "cells"),
    [
        (
            ("on",),
            on_off_answer("on", 0.931, "on", 0.5),
            ["on", "on 93.1\u00a0%", "on 50.0\u00a0%", "same label, −43.1 points"],
        ),
        (
            ("on",),
            on_off_answer("on", 0.9, "off", 0.5),
            ["on", "on 90.0\u00a0%", "off 50.0\u00a0%", "now wrong"],
        ),
        (
            ("off",),
            on_off_answer("on", 0.9, "off", 0.5),
            ["off", "on 90.0\u00a0%", "off 50.0\u00a0%", "now right"],
        ),
        (
            ("get",),
            on_off_answer("on", 0.9, "off", 0.5),
            ["get", "on 90.0\u00a0%", "off 50.0\u00a0%", "still wrong, differently"],
        ),
        (
            (),
            on_off_answer("on", 0.9, "off", 0.5),
            ["–", "on 90.0\u00a0%", "off 50.0\u00a0%", "another label"],
        ),
    ],
)
def test_the_answer_to_a_text_is_shown_with_the_heads_on_and_off(right_labels, answer, cells):
    sentence = ShownSentence("German", "licht an", labels=right_labels)
    table = answer_rows([sentence], [[answer]], 1)
    assert table.to_numpy().tolist() == [["German", *cells]]
    assert list(table.columns[2:4]) == ["Head on", "Head off"]


def test_words_are_counted_and_those_that_change_are_named():
    answers = [
        on_off_answer("NOUN", 0.9, "VERB", 0.6, "Licht"),
        on_off_answer("ADP", 0.8, "ADP", 0.7, "an"),
    ]
    labelled_sentence = ShownSentence("German", "Licht an", labels=("NOUN", "ADP"))
    row = answer_rows([labelled_sentence], [answers], 2).iloc[0].tolist()
    assert row[2:] == [
        "2 of 2 words right",
        "1 of 2 words right",
        "Licht: NOUN 90.0\u00a0% → VERB 60.0\u00a0% (right: NOUN)",
    ]
    sentence_without_labels = ShownSentence("Mine", "Licht an")
    row = answer_rows([sentence_without_labels], [answers], 2).iloc[0].tolist()
    assert row[2:] == ["2 words", "2 words", "Licht: NOUN 90.0\u00a0% → VERB 60.0\u00a0%"]
    assert answer_rows([sentence_without_labels], [[]], 2).empty


# The page.


@pytest.fixture(autouse=True)
def no_attention_known():
    """What one test's worker said is forgotten in the next."""
    st.cache_data.clear()


def attention_requests(worker):
    return [call[1] for call in worker.calls if call[0] == "attention"]


def answer_cells(app):
    """The cells of the page's table without the backslashes that keep Markdown from acting."""
    table = app.table[0].value
    return table.map(lambda cell: cell.replace("\\", "")).to_numpy().tolist()


@pytest.mark.usefixtures("native_buttons")
def test_the_page_shows_the_models_answers_with_the_heads_on_and_off(worker):
    app = run_page("attention", langs="de", heads=["encoder.3.7", "encoder.5.1"], view="BertViz")
    assert "Answers with these 2 heads on and off" in page_text(app)
    assert answer_cells(app) == [
        ["German (de)", "turn_on", "turn_on 93.1\u00a0%", "turn_off 50.0\u00a0%", "now wrong"]
    ]
    (request,) = attention_requests(worker)
    assert request.heads == [("encoder", 3, 7), ("encoder", 5, 1)]
    assert request.task == "intents"
    assert request.label_map is None


@pytest.mark.usefixtures("native_buttons")
def test_a_task_that_labels_words_sends_them_and_counts_its_answers(worker):
    app = run_page(
        "attention", langs="de", task="slots", model="e5-small-slots", heads="encoder.3.7"
    )
    assert attention_requests(worker)[-1].words == ["licht", "an"]
    assert answer_cells(app)[0][2:4] == ["2 of 2 words right", "1 of 2 words right"]
    assert (
        "licht: device 90.0\u00a0% → other 60.0\u00a0% (right: device)" in answer_cells(app)[0][4]
    )


@pytest.mark.usefixtures("native_buttons")
def test_where_there_are_no_answers_the_page_says_why(worker):
    worker.no_answer_note = "task opus has no labels"
    app = run_page("attention", langs="de", heads="encoder.3.7")
    assert len(app.table) == 0
    assert (
        "The model's answers without these heads are not shown: task opus has no labels."
        in page_text(app)
    )


@pytest.mark.parametrize(
    ("labels", "box_label"), [(["turn_on"], "What is meant (label)"), ([], "Answer")]
)
@pytest.mark.usefixtures("native_buttons")
def test_the_box_of_labels_is_called_an_answer_where_the_task_has_no_labels(
    worker, monkeypatch, labels, box_label
):
    card = TaskCard(name="intents", labels=labels, languages=["de"], aligned=False)
    monkeypatch.setattr(worker, "tasks", lambda: [card])
    app = run_page("attention", langs="de", heads="encoder.3.7")
    assert app.selectbox(key="label").label == box_label


@pytest.mark.usefixtures("native_buttons")
def test_a_row_of_an_aligned_task_is_chosen_once_for_all_languages(worker, monkeypatch):
    card = TaskCard(name="intents", labels=["turn_on"], languages=["de", "th"], aligned=True)
    monkeypatch.setattr(worker, "tasks", lambda: [card])
    app = run_page("attention", langs=["de", "th"], heads="encoder.3.7", view="BertViz")
    assert app.selectbox(key="row").label == "The sentence, in each of these languages"
    texts = [request.text for request in attention_requests(worker)]
    assert texts == ["licht an (de)", "licht an (th)"]


@pytest.mark.usefixtures("native_buttons")
def test_the_view_of_all_heads_asks_once_and_shows_the_chosen_one_large(worker):
    app = run_page("attention", langs="de", heads="encoder.2.2")
    assert "Head 2.2" in page_text(app)
    assert "without colour, as there are no scores yet" in page_text(app)
    assert [request.maps for request in attention_requests(worker)] == [False, True]
    app.toggle(key="hide").set_value(True).run()
    assert "a row may sum to less than 1" in page_text(app)
    assert len(attention_requests(worker)) == 2


def test_small_maps_of_all_heads_are_laid_out_as_the_large_one_is():
    rows = np.array([[0.0, 1.0], [0.5, 0.5]])
    grey_levels = (255 * rows).round().astype(np.uint8)
    maps = {"h": base64.b64encode(grey_levels.tobytes()).decode()}
    german = Panel("German", ("a", "b"), {}).of_maps(maps)
    np.testing.assert_allclose(german.weights["h"], rows, atol=0.003)
    arabic = Panel("Arabic", ("أ", "ب"), {}).of_maps(maps)
    mirrored_pixels = [row[::-1] for row in pixels(arabic.thumbnail("h"))]
    assert pixels(german.thumbnail("h")) == mirrored_pixels


def pixels(uri):
    png = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image).tolist()


def test_frames_have_the_colours_of_the_sentence_s_language_or_of_the_mean():
    scores = {name: made_scores(name, "shapley", "0" * 64) for name in ("de", "en")}
    frames, caption = framing(scores, "de", GRID)
    assert frames.tips == maps_of_scores(scores)["de"].tips
    assert caption == "coloured by the heads' scores in German (de)"
    assert framing(scores, "", GRID)[1] == "coloured by the heads' mean scores"
    grid_without_scores = HeadGrid((Stack("encoder", (2,)),))
    grey_frames, note = framing(scores, "de", grid_without_scores)
    assert np.isnan(grey_frames.values).all()
    assert "no scores yet" in note


# Other sentences in which a head has the same kind of link.


def test_the_strongest_link_of_each_kind_is_that_of_the_slow_derivation(rng):
    tokens = ("<s>", "▁Licht", "▁an", "▁und", "▁an", "</s>")
    bare_tokens = ["<s>", "licht", "an", "und", "an", "</s>"]
    weights = rng.dirichlet(np.ones(6), 6)
    panel = Panel("German", tokens, {"h": weights}, special=(0, 5), separators=(5,))
    fits = (
        lambda q, k: k == q - 1 and k != 0,
        lambda q, k: k == q + 1 and k != 5,
        lambda q, k: 1 <= k < q and k != 5 and bare_tokens[k - 1] == bare_tokens[q],
        lambda q, k: bare_tokens[q] == bare_tokens[k] and q != k,
        lambda q, k: k == 5,
        lambda q, k: bare_tokens[k] == "an",
    )
    for kind, fit in zip(LINKS, fits, strict=True):

        def is_link(query, key, fit=fit):
            return query not in (0, 5) and fit(query, key)

        links = links_of_kind(panel, "h", kind, "An")
        assert links.strongest == largest_link(weights, is_link)
        assert links[1:] == pytest.approx(mean_of_links(weights, is_link))
    assert strongest_link(panel, "h", GIVEN, "aus") is None


def test_induction_is_from_a_token_to_what_followed_it_before():
    tokens = ("a", "b", "c", "a", "a")
    weights = np.arange(25).reshape(5, 5) / 100
    panel = Panel("", tokens, {"h": weights})
    links = links_of_kind(panel, "h", INDUCTION)
    # from 3 to 1; from 4 to 1, not to itself, which follows 3
    assert links.strongest == (pytest.approx(0.21), 4, 1)
    assert links.looking_tokens == 2
    assert links.mean == pytest.approx((0.16 + 0.21) / 2)
    twice = Panel("", ("a", "b", "a", "c", "a"), {"h": weights})
    links = links_of_kind(twice, "h", INDUCTION)
    # from 2 to 1, from 4 to 1 and 3 together
    assert links.mean == pytest.approx((0.11 + 0.21 + 0.23) / 2)
    assert links_of_kind(Panel("", ("a", "b"), {"h": weights[:2, :2]}), "h", INDUCTION) is None


def test_reported_24_parts_of_letters_are_the_same_token_by_their_id_and_found_by_their_letter():
    """戏 and 我 begin with the same two bytes, which are one token that occurs twice."""
    tokens = ["戏[1/2]", "戏[2/2]", "我[1/2]", "我[2/2]"]
    ids = [7, 8, 7, 9]
    weights = np.array([[0.1, 0.2, 0.3, 0.4]] * 4)
    worker_weights = Weights(
        tokens=tokens, ids=ids, weights={"h": weights.tolist()}, truncated=False
    )
    panel = Panel.from_attention("", worker_weights)
    assert strongest_link(panel, "h", SAME)[1:] == (0, 2)
    assert strongest_link(panel, "h", GIVEN, "我")[2] == 3
    assert strongest_link(panel, "h", GIVEN, "我[1/2]")[2] == 2
    of_earlier_worker = Panel.from_attention("", worker_weights.model_copy(update={"ids": []}))
    assert strongest_link(of_earlier_worker, "h", SAME) is None
    with_special_token = dataclasses.replace(panel, special=(1,))
    assert ViewOptions(hide=True).applied_to(with_special_token).ids == (7, 7, 9)


def test_reported_24_the_marks_of_parts_are_explained_where_there_are_some():
    parts = random_panel("戏[1/2]", "戏[2/2]")
    whole_letters = random_panel("戏", "x")
    notes = caveats([parts], [parts], ViewOptions())
    assert any(sentence.startswith("戏[1/2]: ") for sentence in notes)
    assert caveats([whole_letters], [whole_letters], ViewOptions()) == []


@pytest.mark.parametrize(
    ("token", "visible_text"),
    [
        ("ี", "◌ี"),
        ("##ी", "##◌ी"),
        ("▁ี[1/2]", "▁◌ี[1/2]"),
        ("ส[2/2]ี[1/2]", "ส[2/2]◌ี[1/2]"),
        ("ดี", "ดี"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("\ufe0f", "[U+FE0F]"),
        ("\n", "↵"),
        ("a\tb c", "a⇥b c"),
        ("\u3000", "[U+3000]"),
        ("\ue000", "[U+E000]"),
    ],
)
def test_reported_24_signs_without_a_letter_and_spaces_can_be_seen(token, visible_text):
    assert random_panel(token).tokens == (visible_text,)


def test_sentences_that_the_worker_would_refuse_are_left_out():
    assert MAX_TEXT_LENGTH == schemas.MAX_CHARACTERS
    assert MAX_OFFERED_SENTENCES <= schemas.MAX_SENTENCES


def panel_of(title, rows, *tokens):
    return Panel(title, tokens, {"h": np.array(rows)})


def test_sentences_are_listed_by_their_strongest_link_or_by_the_mean_over_their_tokens():
    panels = [
        panel_of("once", [[0.0, 0.9, 0.1], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "a", "b", "a"),
        None,
        panel_of("none", [[1.0]], "a"),
        panel_of("always", [[0.2, 0.8, 0.0], [0.0, 0.3, 0.7], [0.3, 0.0, 0.7]], "a", "b", "a"),
    ]
    by_mean = links_table(rank_sentences(panels, "h", NEXT), has_means=True)
    assert by_mean.to_numpy().tolist() == [
        [0.75, 2, 0.8, "a", "b", "always"],
        [0.45, 2, 0.9, "a", "b", "once"],
    ]
    assert list(by_mean.index) == [3, 0]
    by_strongest = links_table(rank_sentences(panels, "h", SAME), has_means=False)
    assert by_strongest.to_numpy().tolist() == [
        [0.3, "a", "a", "always"],
        [0.1, "a", "a", "once"],
    ]
    assert list(by_strongest.columns) == ["Strongest link", "From", "To", "Sentence"]


def test_the_caption_says_how_many_sentences_were_searched_and_how_they_are_ranked():
    panel = panel_of("x", [[1.0]], "a")
    complete = ReadSentences((panel, None), 2)
    assert links_caption(complete, 1, PREVIOUS, "Head 1.2") == (
        "Head 1.2: searched all 2 sentences; 1 of the 1 with such a link, by the mean over the tokens "
        "that have one. 1 sentence of over 2,000 characters left out. Tick a row to open its sentence."
    )
    assert links_caption(complete, 0, SAME, "").startswith("Searched all 2 sentences: none has")
    running = ReadSentences((panel,) * 40, MAX_OFFERED_SENTENCES, is_reading=True)
    assert links_caption(running, 30, GIVEN, "Head 1.2") == (
        "Head 1.2: searched 40 of 1,000 sentences; 20 of the 30 with such a link, by its strongest link."
    )
    assert running.total_words == "the first 1,000 sentences"


@pytest.mark.usefixtures("native_buttons")
def test_the_page_looks_through_the_sentences_only_when_it_is_asked(worker):
    app = run_page("attention", langs="de", heads="encoder.4.4", view="BertViz")
    assert len(attention_requests(worker)) == 1
    press(app, "elsewhere")
    assert len(attention_requests(worker)) == 2
    row = app.dataframe[-1].value.to_numpy().tolist()
    assert row == [[0.0, 1, 0.0, "an", "licht", "licht an (de)"]]
    assert "Head 4.4: searched all 1 sentence; 1 of the 1 with such a link" in page_text(app)
    choose(app, "elsewhere-kind", NEXT)
    assert app.dataframe[-1].value["Mean weight"].tolist() == [1.0]
    choose(app, "elsewhere-kind", GIVEN)
    assert "Type the token" in page_text(app)
    app.text_input(key="elsewhere-token").set_value("LICHT").run()
    assert app.dataframe[-1].value["To"].tolist() == ["licht"]
    assert len(attention_requests(worker)) == 2
    reloaded_app = run_page("attention", langs="de", heads="encoder.4.4", view="BertViz")
    assert "searched all 1 sentence" in page_text(reloaded_app)
    elsewhere_requests = [r for r in attention_requests(worker) if r.task is None]
    assert len(elsewhere_requests) == 1


# The next tokens of a language model.


def next_token(position, p_on, p_off, **fields):
    tops = {"top_on": "▁an", "p_top_on": 0.6, "top_off": "▁aus", "p_top_off": 0.5}
    return NextToken(position=position, p_on=p_on, p_off=p_off, **(tops | fields))


NEXT_TOKENS = [
    next_token(1, 0.6, 0.2),
    next_token(2, 0.1, 0.5, top_on="\n"),
    next_token(3, None, None),
]


def test_each_next_token_is_a_row_with_its_probabilities_and_the_most_probable_tokens():
    weights = random_weights(["das", "▁an", "▁aus"], next_tokens=NEXT_TOKENS)
    table = next_token_table(weights, "next-tokens-1")
    assert [row[:4] for row in table.rows] == [
        ("▁an", 60.0, 20.0, pytest.approx(-40)),
        ("▁aus", 10.0, 50.0, pytest.approx(40)),
        ("(end)", None, None, None),
    ]
    assert table.rows[1][4:] == ("↵ 60.0\u00a0%", "▁aus 50.0\u00a0%")
    assert summary_sentence(weights, 1) == (
        "The token that follows is the most probable one at 1 of 2 tokens, without this head at 1; "
        "its probability changes by +0.0 points on average."
    )


@pytest.mark.usefixtures("native_buttons")
def test_a_language_model_is_shown_token_by_token_in_place_of_answers(worker):
    worker.next_tokens = NEXT_TOKENS[:2]
    app = run_page("attention", langs="de", heads="encoder.4.4")
    text = page_text(app)
    assert "Next token with this head on and off" in text
    assert "are not shown" not in text
    assert app.dataframe[0].value["token that follows"].tolist() == ["licht", "an"]
