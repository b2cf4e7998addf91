"""The Attention page: chosen heads on chosen sentences, as BertViz's head view, shaded tokens or a table."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from html import escape
from importlib import metadata, resources
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from headlab.core import Head, HeadGrid, HeadlabError
from headlab.dashboard.frame import Choice, StoredScores
from headlab.dashboard.names import head_from, head_key, head_words, language_title, plain
from headlab.dashboard.panels.suggestion import MEAN_OF_LANGUAGES, pooled_scores
from headlab.dashboard.widgets import (
    download,
    draw_map,
    figure,
    figures,
    notify_of_link,
    remember_choice,
    remembered_choice,
    saved_name,
    set_widget,
)
from headlab.pictures import HeadMap, head_map, map_of, maps_of, parts_note
from headlab.plots.matrices import MAX_TOKENS, Panel, attention_map, special_words
from headlab.report.maps import pictured
from headlab.report.svg import shaded
from headlab.results import HeadScores
from headlab.worker.client import Client
from headlab.worker.schemas import ExampleCard

# Attention as pictures: BertViz's head view with local scripts, a light view of shaded tokens, and a table of weights.

# d3's category10, in the order in which BertViz assigns them to heads.
COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)
MAX_HEADS = len(COLOURS)
MEAN_QUERY = -1
SHADE = "#2478c8"


def head_view(
    panels: Sequence[Panel],
    names: Mapping[str, str],
    in_row: int | None = None,
    saved: str = "attention",
) -> str:
    """A complete HTML page: BertViz's head view of every panel, side by side where there is room.

    names: display name of each head.  in_row: panels per row; None: all in one row.  saved: name of the file that its
    buttons save it as.
    Raises HeadlabError if a script's package is missing.
    """
    jquery, d3 = (
        package_file("XStatic-jQuery", "jquery.min.js"),
        package_file("XStatic-D3", "d3.js"),
    )
    bertviz = package_file("bertviz", "head_view.js", "pip install --no-deps bertviz==1.4.1")
    bodies, scripts = [], [jquery, d3, _own("attention.js")]
    for i, panel in enumerate(panels):
        bodies.append(_panel_html(panel, names, f"bertviz-{i}"))
        # Only the first: the marker occurs again in a comment on the same line.
        scripts.append(bertviz.replace("PYTHON_PARAMS", _params(panel, f"bertviz-{i}"), 1))
    tags = "".join(f"<script>{script}</script>" for script in scripts)
    step = in_row or len(bodies)
    rows = "".join(
        f'<div class="row">{"".join(bodies[at : at + step])}</div>'
        for at in range(0, len(bodies), step)
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_policy(scripts)}'
        f"<title>Attention</title><style>{_own('attention.css')}</style></head>"
        f"<body>{rows}{SAVE.format(escape(saved))}{tags}</body></html>"
    )


SAVE = (
    '<p class="save" data-name="{}">Save figure <button type="button" data-kind="svg">SVG</button> '
    '<button type="button" data-kind="png">PNG</button></p>'
)


def _panel_html(panel: Panel, names: Mapping[str, str], root: str) -> str:
    heads = "".join(
        f'<li><i style="background:{colour}"></i>{escape(names.get(name, name))}</li>'
        for name, colour in zip(panel.weights, cycle(COLOURS), strict=False)
    )
    return (
        f'<div class="panel" id="{root}"><h2>{escape(panel.title)}</h2><ul class="heads">{heads}</ul>'
        '<select id="layer" hidden></select><div id="vis"></div></div>'
    )


def _params(panel: Panel, root: str) -> str:
    """BertViz's parameters: the chosen heads as one layer, so that heads of several layers share a view."""
    attention = [[rows.tolist() for rows in panel.weights.values()]]
    view = {
        "name": None,
        "attn": attention,
        "left_text": list(panel.tokens),
        "right_text": list(panel.tokens),
    }
    heads = list(range(len(panel.weights)))
    params = {
        "attention": {"0": view},
        "default_filter": "0",
        "root_div_id": root,
        "layer": 0,
        "heads": heads,
    }
    # A token may contain </script>, so < and > are escaped. The JSON is ASCII, so it has no line separators either.
    return (
        json.dumps({**params, "include_layers": [0]})
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )


def _policy(scripts: Iterable[str]) -> str:
    """A policy that runs only these scripts and loads nothing: a second defence behind the escaping."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    content = f"default-src 'none'; style-src 'unsafe-inline'; img-src blob:; script-src {hashes}"
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


@cache
def _own(name: str) -> str:
    return (resources.files("headlab.dashboard") / "static" / name).read_text("utf-8")


@cache
def package_file(package: str, name: str, remedy: str = "") -> str:
    """A script shipped with an installed package, which is not imported. Raises HeadlabError if it is missing.

    remedy: the command that installs the package, if not the usual one.
    """
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise _missing(package, remedy or f"pip install {package}") from None
    for file in files:
        if file.name == name:
            return _script(Path(str(file.locate())))
    raise _missing(f"{package}'s {name}", f"pip install --force-reinstall {package}")


def _script(path: Path) -> str:
    """A script's text, safe to embed in a page: nothing in it can close the script element early."""
    # Browsers normalise every line end of a page to \n before they hash a script.
    text = path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _missing(what: str, remedy: str) -> HeadlabError:
    return HeadlabError(
        f"{what} is not installed, so the BertViz view cannot be drawn: {remedy}. The other views work without it",
        code="package.bertviz_missing",
    )


def shading(panel: Panel, names: Mapping[str, str], query: int = MEAN_QUERY) -> str:
    """The sentence once per head, each token shaded by its share of the attention; HTML for `st.html`.

    query: index of the attending token; MEAN_QUERY: the mean over all tokens.
    """
    lines = []
    for name, top, chips in _shares(panel, query):
        lines.append(
            f'<p style="margin:.3rem 0 .1rem"><b>{escape(names.get(name, name))}</b> '
            f'<span style="opacity:.75">darkest: {top:.2f}</span></p>'
            f'<p dir="{"rtl" if panel.rtl else "ltr"}" style="margin:0;line-height:2.1">'
            f"{''.join(_chip(token, top * share, share, asks) for token, share, asks in chips)}</p>"
        )
    return "".join(lines)


def _shares(panel: Panel, query: int) -> Iterator[tuple[str, float, list[tuple[str, float, bool]]]]:
    """Each head with its largest weight, and every token with its share of that and whether it is the query."""
    for name, rows in panel.weights.items():
        weights = rows.mean(axis=0) if query == MEAN_QUERY else rows[query]
        top = float(weights.max(initial=0.0)) or 1.0
        yield (
            name,
            top,
            [
                (t, float(w) / top, i == query)
                for i, (t, w) in enumerate(zip(panel.tokens, weights, strict=True))
            ],
        )


def shaded_file(panel: Panel, names: Mapping[str, str], query: int = MEAN_QUERY) -> str:
    """What `shading` shows, as an SVG file."""
    rows = [
        (f"{names.get(name, name)}, darkest: {top:.2f}", chips)
        for name, top, chips in _shares(panel, query)
    ]
    return shaded(rows, SHADE, f"Attention: {panel.title}", rtl=panel.rtl)


def _chip(token: str, weight: float, share: float, is_query: bool) -> str:
    border = (
        "2px solid currentColor"
        if is_query
        else "1px solid color-mix(in srgb, currentColor 18%, transparent)"
    )
    colour = f"color-mix(in srgb, {SHADE} {70 * share:.0f}%, transparent)"
    return (
        f'<span dir="auto" title="{weight:.3f}" style="display:inline-block;line-height:1.5;'
        f"margin:0 2px 2px 0;padding:0 .3em;border-radius:3px;border:{border};"
        f'background:{colour}">{escape(token)}</span>'
    )


def weights_table(panel: Panel, name: str) -> pd.DataFrame:
    """One head's weights: a row per attending token, a column per attended token; tokens are numbered."""
    labels = [f"{i} {token}" for i, token in enumerate(panel.tokens)]
    return pd.DataFrame(
        panel.weights[name], index=pd.Index(labels, name="from \\ to"), columns=labels
    )


def strongest_links(panel: Panel, names: Mapping[str, str], top: int = 5) -> pd.DataFrame:
    """The largest weights of every head, one row each."""
    rows = []
    for name, weights in panel.weights.items():
        for flat in np.argsort(-weights, axis=None, kind="stable")[:top]:
            query, key = divmod(int(flat), len(panel.tokens))
            rows.append(
                (
                    names.get(name, name),
                    panel.tokens[query],
                    panel.tokens[key],
                    float(weights[query, key]),
                )
            )
    return pd.DataFrame(rows, columns=["Head", "From", "To", "Weight"])


# What the Attention page shows: which heads, and which sentence in each language.

SIDE_BY_SIDE = 4
MAX_CHARACTERS = 1200
SENTENCES = 500
TASK, OWN = "of the task", "my own"
PAIR = " ||| "  # between the two texts of a pair
KINDS = ("agnostic", "specific")


class Sentence(NamedTuple):
    """A text to show and its heading.

    pair: the second text of a sentence pair.  words: of a task that labels words.  right: its label, or its words'
    labels; empty where it has none.  language: empty where it is not known.
    """

    title: str
    text: str
    pair: str | None = None
    words: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    language: str = ""


def heads_of_link(grid: HeadGrid, keys: Sequence[str]) -> tuple[list[Head], str | None]:
    """The valid heads that a link names, and a message about the invalid ones, None if there are none."""
    heads, wrong = [], []
    for key in keys:
        try:
            head = head_from(key)
            grid.index(head)
            heads.append(head)
        except HeadlabError as error:
            wrong.append(str(error))
    return heads[:MAX_HEADS], "; ".join(wrong) or None


def head_names(grid: HeadGrid, heads: Sequence[Head]) -> dict[str, str]:
    """{head key: display name}; a link may give a head's kind."""
    asked = {kind: st.query_params.get_all(kind) for kind in KINDS}
    names = {}
    for head in heads:
        key, name = head_key(head), head_words(head, len(grid.stacks) > 1)
        kinds = [f"language-{kind}" for kind, keys in asked.items() if key in keys]
        names[key] = f"{name} ({', '.join(kinds)})" if kinds else name
    return names


def strongest(grid: HeadGrid, found: StoredScores) -> Head:
    """The head with the highest mean score over these languages; the first head if there are no scores."""
    scores = pooled_scores(found.scores, MEAN_OF_LANGUAGES)
    return (
        grid.heads[int(np.argmax(scores.values))]
        if scores is not None and scores.grid.to_json() == grid.to_json()
        else grid.heads[0]
    )


def pick_heads(grid: HeadGrid, found: StoredScores) -> list[Head]:
    """The widget for heads; it starts with the link's heads, or else the strongest one."""
    keys, sentence = [head_key(head) for head in grid.heads], None
    if "heads" not in st.session_state:
        named, wrong = heads_of_link(
            grid, [*st.query_params.get_all("heads"), *st.query_params.get_all("head")]
        )
        sentence = f"The link names a head that cannot be shown: {wrong}." if wrong else None
        set_widget("heads", [head_key(head) for head in named or [strongest(grid, found)]])
    fitting = [key for key in st.session_state["heads"] if key in keys]
    if fitting != st.session_state["heads"]:  # another model has other heads
        set_widget("heads", fitting)
    notify_of_link("heads", sentence)
    several = len(grid.stacks) > 1
    chosen = st.multiselect(
        f"Heads (up to {MAX_HEADS})",
        keys,
        key="heads",
        max_selections=MAX_HEADS,
        format_func=lambda key: head_words(head_from(key), several),
    )
    # Writing the link replaces all of it by what it was when the request was sent, so it is written only if it changes.
    if st.query_params.get_all("heads") != chosen:
        st.query_params["heads"] = chosen
    st.query_params.pop("head", None)
    return [head_from(key) for key in chosen]


@st.cache_resource(max_entries=64, show_spinner=False)
def examples_of(_client: Client, task: str, language: str) -> Sequence[ExampleCard]:
    """The first examples of a language, the same objects for every session."""
    return _client.sentences(task, language, n=SENTENCES)


def pick_sentences(client: Client, choice: Choice) -> list[Sentence]:
    """Draw the widgets for sentences and return the sentences chosen."""
    source = st.radio("Sentence", [TASK, OWN], horizontal=True, key="source", bind="query-params")
    return _typed() if source == OWN else _of_task(client, choice)


def _typed() -> list[Sentence]:
    text = st.text_area(
        f"Text: one sentence a line, up to {SIDE_BY_SIDE} side by side; a pair with {PAIR.strip()} between its texts",
        max_chars=MAX_CHARACTERS,
        key="text",
        bind="query-params",
        placeholder="Turn on the lights in the kitchen",
    )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > SIDE_BY_SIDE:
        st.caption(f"Showing the first {SIDE_BY_SIDE} of {len(lines)} lines.")
    titles = [
        f"Line {i}" if len(lines) > 1 else "Your sentence" for i in range(1, SIDE_BY_SIDE + 1)
    ]
    return [typed(title, line) for title, line in zip(titles, lines, strict=False)]


def typed(title: str, line: str) -> Sentence:
    """A line as a sentence, or as a pair where PAIR divides it."""
    text, divided, pair = (part.strip() for part in line.partition(PAIR.strip()))
    return Sentence(title, text, pair) if divided and text and pair else Sentence(title, line)


def _of_task(client: Client, choice: Choice) -> list[Sentence]:
    shown = st.multiselect(
        f"Languages side by side (up to {SIDE_BY_SIDE})",
        choice.languages,
        default=choice.languages[:SIDE_BY_SIDE],
        max_selections=SIDE_BY_SIDE,
        key="side",
        bind="query-params",
    )
    examples = {language: examples_of(client, choice.task, language) for language in shown}
    if not examples:
        return []
    card = next((card for card in client.tasks() if card.name == choice.task), None)
    if card is not None and card.aligned:
        return _aligned(examples)
    has_labels = card is not None and card.labels
    return _by_label(examples, "What is meant (label)" if has_labels else "Answer")


def _aligned(examples: Mapping[str, Sequence[ExampleCard]]) -> list[Sentence]:
    """Row i means the same in every language: one choice for all."""
    first = next(iter(examples.values()))
    rows = min(map(len, examples.values()))
    row = st.selectbox(
        "Sentence",
        range(rows),
        format_func=lambda i: first[i].text,
        key="row",
        bind="query-params",
    )
    return [_sentence(language, cards[row]) for language, cards in examples.items()]


def _by_label(examples: Mapping[str, Sequence[ExampleCard]], called: str) -> list[Sentence]:
    """Rows differ between languages: choose a label, then a sentence with that label in each language.

    In tasks that label words or generate text, sentences have no label, so all can be chosen.  called: the name of the
    box with the labels.
    """
    labels = sorted(
        {card.label for cards in examples.values() for card in cards if card.label is not None}
    )
    label = st.selectbox(called, labels, key="label", bind="query-params") if labels else None
    picked = []
    for language, place in zip(examples, st.columns(len(examples)), strict=True):
        fitting = by_title(examples[language], label)
        if not fitting:
            place.caption(
                f"{language_title(language)} has no sentence with this label among its first {SENTENCES}."
            )
            continue
        chosen = place.selectbox(
            language_title(language),
            list(fitting),
            key=f"sentence-{language}",
            bind="query-params",
        )
        picked.append(_sentence(language, fitting[chosen]))
    return picked


def by_title(examples: Sequence[ExampleCard], label: str | None) -> dict[str, ExampleCard]:
    """The examples with a label by their text; of several with one text, all but the first by both of their texts."""
    examples_by_title: dict[str, ExampleCard] = {}
    for example in examples:
        if example.label != label:
            continue
        title = example.text
        if example.pair and title in examples_by_title:
            title = f"{example.text}{PAIR}{example.pair}"
        examples_by_title.setdefault(title, example)
    return examples_by_title


def _sentence(language: str, example: ExampleCard) -> Sentence:
    right = tuple(example.labels)
    if not right and example.label is not None:
        right = (example.label,)
    return Sentence(
        title=language_title(language),
        text=example.text,
        pair=example.pair,
        words=tuple(example.words),
        right=right,
        language=language,
    )


# The views of the Attention page, and what may be done to every one of them.

FRAME_HEIGHT = 420
BERTVIZ, SHADED, TABLE, EVERY = VIEWS = (
    "BertViz",
    "Shaded tokens",
    "Table of weights",
    "All heads",
)
MEAN_HEAD = "mean"


class Options(NamedTuple):
    """What is done to the attention before it is drawn."""

    hide: bool = False
    words: bool = False
    mean: bool = False

    def of(self, panel: Panel) -> Panel:
        """The panel as it is drawn."""
        panel = panel.in_words() if self.words else panel
        panel = panel.without_special() if self.hide else panel
        return panel.with_mean(MEAN_HEAD) if self.mean and len(panel.weights) > 1 else panel


def pick_options(heads: int) -> Options:
    """The switches for special tokens, words and the mean of the heads, which needs two."""
    with st.container(horizontal=True, gap="medium"):
        return Options(
            st.toggle("Hide special tokens", key="hide", bind="query-params"),
            st.toggle("Words instead of pieces", key="whole", bind="query-params", help=WORDS_HELP),
            heads > 1 and st.toggle("Mean of the chosen heads", key="mean", bind="query-params"),
        )


WORDS_HELP = (
    "Attention to a word is the sum over its pieces, attention from it their mean (Clark et al. 2019). Words are those "
    "that the tokenizer knows."
)


def draw(view: str, panels: Sequence[Panel], names: Mapping[str, str], options: Options) -> None:
    """Draw the panels in one of VIEWS. names: display name of each head."""
    names = {**names, MEAN_HEAD: "Mean of the chosen heads"}
    shown = [options.of(panel) for panel in panels]
    {BERTVIZ: _draw_bertviz, SHADED: _shaded, TABLE: _table}[view](
        shown, {n: names[n] for n in shown[0].weights}
    )
    for words in about(panels, shown, options):
        st.caption(plain(words))


def draw_special(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    """Draw how much of its weight each head gives special tokens, whether they are shown or not."""
    if said := special_words(panels, names):
        st.caption("Weight on special tokens, averaged over the sentence's tokens:")
        st.caption("\n".join(f"- {plain(words)}." for words in said))


def draw_every(
    panel: Panel, every: Panel, options: Options, scores: Mapping[str, HeadScores], language: str, grid: HeadGrid,
    shared: Sequence[int] = (),
) -> None:  # fmt: skip
    """Draw the view of all heads of one sentence, and the head chosen last, or by a click, enlarged.

    panel: of the chosen heads.  every: of all heads.  scores: by language, for the frames.  shared: as `together` of
    `headgrid.draw_map`.
    """
    head = head_from(remembered_choice("head"))
    shown, small = options.of(panel), options.of(every)
    framed, whose = framing(scores, language, grid)
    with st.container(horizontal=True, gap="medium"):  # side by side where there is room
        left, right = st.container(width=540), st.container(width=450)
    with left:
        pictures = [
            small.small(key) if key in small.weights else "" for key in map(head_key, grid.heads)
        ]
        draw_map(
            framed,
            key="every",
            title=panel.title,
            selected=head,
            on_click=choose,
            pictures=pictures,
            together=shared,
        )
        st.caption(
            f"One small map per head, its largest weight darkest; frames are {whose}. Click one to choose that head."
        )
        _svg(
            partial(pictured, framed, pictures, f"Attention of all heads: {panel.title}"),
            "all-heads",
        )
    with right:
        key, name = head_key(head), head_words(head, len(grid.stacks) > 1)
        st.markdown(f"##### {plain(name)}")
        figure(
            attention_map(shown, key), f"attention-{key}", key="enlarged", alt=f"Attention of {name}: {panel.title}",
            about=" ".join(panel.tokens)[:120],
        )  # fmt: skip
        turned = ", from right to left as the sentence runs" if panel.rtl else ""
        st.caption(f"A row per token that looks, a column per token looked at{turned}.")
    for words in about([panel], [shown], options):
        st.caption(plain(words))


def choose(head: Head) -> None:
    """A click on a head: it is the chosen one, here and on other pages."""
    set_widget("heads", [head_key(head)])
    remember_choice("head", head_key(head))


def framing(scores: Mapping[str, HeadScores], language: str, grid: HeadGrid) -> tuple[HeadMap, str]:
    """The map that frames take their colours and signs from, and whose scores it has, in words."""
    fitting = {name: s for name, s in scores.items() if s.grid.to_json() == grid.to_json()}
    if not fitting:
        return head_map(
            np.full(grid.size, np.nan), grid
        ), "without colour, as there are no scores yet"
    if language in fitting:
        return maps_of(fitting)[
            language
        ], f"coloured by the heads' scores in {language_title(language)}"
    mean = pooled_scores(fitting, MEAN_OF_LANGUAGES)
    assert mean is not None
    return map_of(mean), "coloured by the heads' mean scores"


def about(panels: Sequence[Panel], shown: Sequence[Panel], options: Options) -> list[str]:
    """What to know of panels as they are shown, in sentences."""
    found = []
    if options.hide and any(panel.special for panel in panels):
        found.append(
            "Special tokens are left out; weights are as they were, so a row may sum to less than 1."
        )
    alike = [panel.title for panel in panels if options.words and panel.in_words() is panel]
    if alike:
        found.append(
            f"The tokenizer knows no borders of words here, so pieces are shown: {', '.join(alike)}."
        )
    if parts := parts_note(token for panel in shown for token in panel.tokens):
        found.append(parts)
    if any(panel.cut for panel in shown):
        found.append(
            f"Sentences are cut after {MAX_TOKENS} tokens; what the model says is of the whole sentence."
        )
    return found


def _draw_bertviz(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    st.caption(
        "Lines run from the token that looks (left) to the token looked at (right), as thick in colour as the weight. "
        "Point at a token for its own lines; click a square to hide a head, double-click to see it alone."
    )
    titles = ", ".join(panel.title for panel in panels)
    apart = len(names) > 1 and st.toggle(
        "A picture for each head", key="apart", bind="query-params"
    )
    shown = [alone for panel in panels for alone in panel.heads()] if apart else panels
    # The frame sets its own height once it has drawn.
    st.iframe(
        head_view(
            shown,
            names,
            len(names) if apart else None,
            saved_name("attention", figures.chosen()),
        ),
        height=FRAME_HEIGHT,
        alt=f"Attention of {', '.join(names.values())}: {titles}",
    )


def _shaded(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    for i, (panel, place) in enumerate(
        zip(panels, st.columns(len(panels), gap="medium"), strict=True)
    ):
        with place:
            tokens = {at: f"{at} {token}" for at, token in enumerate(panel.tokens)}
            queries = {MEAN_QUERY: "mean of all tokens", **tokens}
            label = f"{plain(panel.title)}: who looks"
            query = st.selectbox(
                label, list(queries), format_func=queries.__getitem__, key=f"query-{i}"
            )
            st.html(shading(panel, names, query))
            _svg(partial(shaded_file, panel, names, query), f"shaded-{i}")


def _svg(data: Callable[[], str], name: str) -> None:
    saved = f"{saved_name(name, figures.chosen())}.svg"
    download("Save as SVG", data, saved, "image/svg+xml", key=f"svg-{name}")


def _table(panels: Sequence[Panel], names: Mapping[str, str]) -> None:
    head = st.selectbox("Head", list(names), format_func=names.__getitem__, key="table-head")
    for panel in panels:
        st.markdown(f"**{plain(panel.title)}**")
        frame = weights_table(panel, head)
        st.dataframe(frame.style.format("{:.3f}").map(_shade), key=f"weights-{panel.title}")
        with st.expander(f"{plain(panel.title)}: the strongest links of each head"):
            st.dataframe(strongest_links(panel, names), hide_index=True)


def _shade(weight: float) -> str:
    return f"background-color: rgba(36, 120, 200, {0.75 * weight:.2f})"
