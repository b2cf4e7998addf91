"""Attention as pictures: BertViz's head view with local scripts, a light view of shaded tokens, and a table of weights.

Tokens and titles come from users: they reach HTML escaped, and the page of the head view runs only the
scripts it was made with (a content security policy by hash), loads nothing, and asks no network.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.errors import HeadlabError
from headlab.records import Floats

MAX_TOKENS = 64
# d3's category10, in the order in which BertViz gives them to heads.
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
MAX_HEADS = len(COLOURS)
MEAN_QUERY = -1
SHADE = "#2478c8"


@dataclass(frozen=True)
class Panel:
    """One sentence and how heads read it.

    weights: by head's name, float [query, key]; rows sum to 1 unless the sentence was cut.  separators:
    places of the tokens that end or part texts.
    """

    title: str
    tokens: tuple[str, ...]
    weights: Mapping[str, Floats]
    cut: bool = False
    separators: tuple[int, ...] = ()

    @staticmethod
    def of(title: str, answer: Mapping[str, Any]) -> Panel:
        """A panel from the worker's answer (tokens, weights, separators, truncated), cut to 64 tokens.

        Raises HeadlabError if the answer's parts do not fit each other.
        """
        tokens = tuple(map(str, answer["tokens"]))
        weights = {name: np.asarray(rows, float) for name, rows in answer["weights"].items()}
        for name, rows in weights.items():
            if rows.shape != (len(tokens), len(tokens)):
                raise HeadlabError(
                    f"head {name} looks from {rows.shape[0]} to {rows.shape[-1]} tokens, but the sentence has "
                    f"{len(tokens)}; this view shows heads that read one sequence",
                    code="head.not_one_sequence",
                )
        n = min(len(tokens), MAX_TOKENS)
        kept = {name: rows[:n, :n].round(3) for name, rows in weights.items()}
        ends = tuple(int(place) for place in answer.get("separators", ()) if place < n)
        return Panel(title, tokens[:n], kept, bool(answer.get("truncated")) or n < len(tokens), ends)

    def heads(self) -> list[Panel]:
        """A panel for each head alone."""
        return [replace(self, weights={name: rows}) for name, rows in self.weights.items()]

    def to_separators(self, name: str) -> int:
        """How many tokens a head makes look most at a separator; a tie does not count."""
        ends = np.isin(np.arange(len(self.tokens)), self.separators)
        rows = self.weights[name]
        on, off = (rows[:, side].max(axis=1, initial=-1.0) for side in (ends, ~ends))
        return int((on > off).sum())


def head_view(panels: Sequence[Panel], names: Mapping[str, str], in_row: int | None = None) -> str:
    """A whole HTML page: BertViz's head view of every panel, side by side where there is room.

    names: how to write each head.  in_row: so many panels begin a new row; None: they all follow each other.
    Raises HeadlabError if a script's package is missing.
    """
    scripts = [
        package_file("XStatic-jQuery", "jquery.min.js"),
        package_file("XStatic-D3", "d3.js"),
        _own("attention.js"),
    ]
    bodies, style = [], _own("attention.css")
    for i, panel in enumerate(panels):
        bodies.append(_panel_html(panel, names, f"bertviz-{i}"))
        # Once only: the marker stands in a comment of the same line again.
        scripts.append(_bertviz().replace("PYTHON_PARAMS", _params(panel, f"bertviz-{i}"), 1))
    tags = "".join(f"<script>{script}</script>" for script in scripts)
    step = in_row or len(bodies)
    rows = "".join(f'<div class="row">{"".join(bodies[at : at + step])}</div>' for at in range(0, len(bodies), step))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_policy(scripts)}'
        f"<title>Attention</title><style>{style}</style></head>"
        f"<body>{rows}{tags}</body></html>"
    )


def _panel_html(panel: Panel, names: Mapping[str, str], root: str) -> str:
    heads = "".join(
        f'<li><i style="background:{colour}"></i>{escape(names.get(name, name))}</li>'
        for name, colour in zip(panel.weights, COLOURS, strict=False)
    )
    return (
        f'<div class="panel" id="{root}"><h2>{escape(panel.title)}</h2><ul class="heads">{heads}</ul>'
        '<select id="layer" hidden></select><div id="vis"></div></div>'
    )


def _params(panel: Panel, root: str) -> str:
    """BertViz's parameters: the chosen heads as one layer, so that heads of several layers share a picture."""
    attention = [[rows.tolist() for rows in panel.weights.values()]]
    view = {"name": None, "attn": attention, "left_text": list(panel.tokens), "right_text": list(panel.tokens)}
    heads = list(range(len(panel.weights)))
    params = {"attention": {"0": view}, "default_filter": "0", "root_div_id": root, "layer": 0, "heads": heads}
    # A token may hold </script>: no < may stand in a script's text. ASCII only, so no line separator either.
    return json.dumps({**params, "include_layers": [0]}).replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(scripts: Iterable[str]) -> str:
    """Only these very scripts run and nothing is loaded: the second lock behind the escaping."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    content = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}"
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


@cache
def _own(name: str) -> str:
    return (resources.files("headlab.ui") / "static" / name).read_text("utf-8")


@cache
def _bertviz() -> str:
    """The script of BertViz's head view; the package itself is not imported, for it would import torch."""
    found = importlib.util.find_spec("bertviz")
    if found is None or not found.submodule_search_locations:
        raise _missing("bertviz", "pip install --no-deps bertviz==1.4.1")
    return _script(Path(found.submodule_search_locations[0]) / "head_view.js")


@cache
def package_file(package: str, name: str) -> str:
    """A script that came with an installed package. Raises HeadlabError where it is not there."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise _missing(package, f"pip install {package}") from None
    for file in files:
        if file.name == name:
            return _script(Path(str(file.locate())))
    raise _missing(f"{package}'s {name}", f"pip install --force-reinstall {package}")


def _script(path: Path) -> str:
    """A script's text, fit to stand inside a page: nothing in it may end the element early."""
    # Browsers read every line end of a page as \n, and hash what they read.
    text = path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _missing(what: str, remedy: str) -> HeadlabError:
    return HeadlabError(
        f"{what} is not installed, so the BertViz view cannot be drawn: {remedy}. The other views work without it",
        code="package.bertviz_missing",
    )


def shading(panel: Panel, names: Mapping[str, str], query: int = MEAN_QUERY) -> str:
    """The sentence once per head, each token shaded by its share of the attention; HTML for `st.html`.

    query: whose attention, an index into the tokens; MEAN_QUERY: the mean over all tokens.
    """
    lines = []
    for name, rows in panel.weights.items():
        weights = rows.mean(axis=0) if query == MEAN_QUERY else rows[query]
        top = float(weights.max(initial=0.0)) or 1.0
        chips = "".join(
            _chip(t, float(w), float(w) / top, i == query)
            for i, (t, w) in enumerate(zip(panel.tokens, weights, strict=True))
        )
        lines.append(
            f'<p style="margin:.3rem 0 .1rem"><b>{escape(names.get(name, name))}</b> '
            f'<span style="opacity:.75">darkest: {top:.2f}</span></p>'
            f'<p dir="auto" style="margin:0;line-height:2.1">{chips}</p>'
        )
    return "".join(lines)


def _chip(token: str, weight: float, share: float, is_query: bool) -> str:
    border = "2px solid currentColor" if is_query else "1px solid color-mix(in srgb, currentColor 18%, transparent)"
    colour = f"color-mix(in srgb, {SHADE} {70 * share:.0f}%, transparent)"
    return (
        f'<span title="{weight:.3f}" style="display:inline-block;line-height:1.5;margin:0 2px 2px 0;padding:0 .3em;'
        f'border-radius:3px;border:{border};background:{colour}">{escape(token)}</span>'
    )


def separator_words(panels: Sequence[Panel], names: Mapping[str, str]) -> list[str]:
    """For each head, how many tokens of each sentence give their largest weight to a separator; nothing without one."""
    seen = [panel for panel in panels if panel.separators]
    heads = dict.fromkeys(name for panel in seen for name in panel.weights)
    return [f"{names.get(name, name)}: {', '.join(_counted(panel, name) for panel in seen)}" for name in heads]


def _counted(panel: Panel, name: str) -> str:
    count, tokens = panel.to_separators(name), len(panel.tokens)
    return f"{panel.title} {'every one' if count == tokens else count} of {tokens}"


def weights_table(panel: Panel, name: str) -> pd.DataFrame:
    """One head's weights: a row per looking token, a column per token looked at; tokens are numbered."""
    labels = [f"{i} {token}" for i, token in enumerate(panel.tokens)]
    return pd.DataFrame(panel.weights[name], index=pd.Index(labels, name="from \\ to"), columns=labels)


def strongest_links(panel: Panel, names: Mapping[str, str], top: int = 5) -> pd.DataFrame:
    """The largest weights of every head, one row each."""
    rows = []
    for name, weights in panel.weights.items():
        for flat in np.argsort(-weights, axis=None, kind="stable")[:top]:
            query, key = divmod(int(flat), len(panel.tokens))
            rows.append((names.get(name, name), panel.tokens[query], panel.tokens[key], float(weights[query, key])))
    return pd.DataFrame(rows, columns=["Head", "From", "To", "Weight"])
