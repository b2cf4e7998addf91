"""Attention as pictures: BertViz's head view, shaded tokens, and a table of weights.

Scripts are local.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import metadata, resources
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd

from headlab.core import HeadlabError
from headlab.dashboard.panels.heads import HEAD_COLOURS
from headlab.plots.matrices import Panel
from headlab.report.svg import shaded_words

MEAN_QUERY = -1

SHADE = "#2478c8"


def head_view(
    panels: Sequence[Panel],
    names: Mapping[str, str],
    panels_in_row: int | None = None,
    file_name: str = "attention",
) -> str:
    """A complete HTML page: BertViz's head view of every panel, side by side where there is room.

    Args:
        panels: The sentences, at least one.
        names: Display name of each head.
        panels_in_row: How many panels are in a row; None for all in one row.
        file_name: What the page's buttons save it as.

    Raises:
        HeadlabError: If a script's package is missing.
    """
    bertviz = package_file("bertviz", "head_view.js", "pip install --no-deps bertviz==1.4.1")
    scripts = [
        package_file("XStatic-jQuery", "jquery.min.js"),
        package_file("XStatic-D3", "d3.js"),
        _static_text("attention.js"),
    ]
    bodies = []
    for panel_number, panel in enumerate(panels):
        root = f"bertviz-{panel_number}"
        bodies.append(_panel_html(panel, names, root))
        # Only the first: the marker occurs again in a comment on the same line.
        scripts.append(bertviz.replace("PYTHON_PARAMS", _params(panel, root), 1))
    tags = "".join(f"<script>{script}</script>" for script in scripts)
    row_length = panels_in_row or len(bodies)
    rows = []
    for first_in_row in range(0, len(bodies), row_length):
        row_bodies = bodies[first_in_row : first_in_row + row_length]
        rows.append(f'<div class="row">{"".join(row_bodies)}</div>')
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{_policy(scripts)}'
        f"<title>Attention</title><style>{_static_text('attention.css')}</style></head>"
        f"<body>{''.join(rows)}{SAVE.format(escape(file_name))}{tags}</body></html>"
    )


SAVE = (
    '<p class="save" data-name="{}">Save figure <button type="button" data-kind="svg">SVG</button> '
    '<button type="button" data-kind="png">PNG</button></p>'
)


def _panel_html(panel: Panel, names: Mapping[str, str], root: str) -> str:
    items = []
    for name, colour in zip(panel.weights, cycle(HEAD_COLOURS), strict=False):
        items.append(f'<li><i style="background:{colour}"></i>{escape(names.get(name, name))}</li>')
    return (
        f'<div class="panel" id="{root}"><h2>{escape(panel.title)}</h2>'
        f'<ul class="heads">{"".join(items)}</ul><select id="layer" hidden></select><div id="vis"></div></div>'
    )


def _params(panel: Panel, root: str) -> str:
    """BertViz's parameters, as JSON.

    The chosen heads are one layer, so that heads of several layers share a view.
    """
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
    # A token may contain </script>, so < and > are escaped. The JSON is ASCII, so it has no line
    # separators either.
    return (
        json.dumps({**params, "include_layers": [0]})
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    )


def _policy(scripts: Iterable[str]) -> str:
    """A policy that runs only these scripts and loads nothing.

    It is a second defence behind the escaping.
    """
    sources = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        sources.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    content = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src blob:; "
        f"script-src {' '.join(sources)}"
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


@cache
def _static_text(name: str) -> str:
    return (resources.files("headlab.dashboard") / "static" / name).read_text("utf-8")


@cache
def package_file(package: str, name: str, remedy: str = "") -> str:
    """A script shipped with an installed package, which is not imported.

    Args:
        package: Its name.
        name: Of the script's file.
        remedy: The command that installs the package, if not the usual one.

    Raises:
        HeadlabError: If the package or its script is missing.
    """
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise _missing_error(package, remedy or f"pip install {package}") from None
    for file in files:
        if file.name == name:
            return _embeddable_script(Path(str(file.locate())))
    raise _missing_error(f"{package}'s {name}", f"pip install --force-reinstall {package}")


def _embeddable_script(path: Path) -> str:
    """A script's text, in which nothing can close the script element of a page early."""
    # Browsers normalise every line end of a page to \n before they hash a script.
    text = path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _missing_error(what: str, remedy: str) -> HeadlabError:
    return HeadlabError(
        f"{what} is not installed, so the BertViz view cannot be drawn: {remedy}. The other views "
        "work without it",
        code="package.bertviz_missing",
    )


def shading(panel: Panel, names: Mapping[str, str], query: int = MEAN_QUERY) -> str:
    """The sentence once per head, each token shaded by its share of the attention.

    HTML for `st.html`.

    Args:
        panel: The sentence.
        names: Display name of each head.
        query: Index of the attending token; MEAN_QUERY for the mean over all tokens.
    """
    direction = "rtl" if panel.rtl else "ltr"
    lines = []
    for name, largest_weight, token_shares in _shares_of_heads(panel, query):
        chips = []
        for token, share, is_query in token_shares:
            chips.append(_chip(token, largest_weight * share, share, is_query))
        lines.append(
            f'<p style="margin:.3rem 0 .1rem"><b>{escape(names.get(name, name))}</b> '
            f'<span style="opacity:.75">darkest: {largest_weight:.2f}</span></p>'
            f'<p dir="{direction}" style="margin:0;line-height:2.1">'
            f"{''.join(chips)}</p>"
        )
    return "".join(lines)


def _shares_of_heads(
    panel: Panel, query: int
) -> Iterator[tuple[str, float, list[tuple[str, float, bool]]]]:
    """Each head with its largest weight, and the tokens with their shares of that.

    Yields:
        The head's key, its largest weight, and for every token the token itself, its weight as a
        share of the largest, and whether it is the attending one.
    """
    for name, rows in panel.weights.items():
        weights = rows.mean(axis=0) if query == MEAN_QUERY else rows[query]
        largest_weight = float(weights.max(initial=0.0)) or 1.0
        token_shares = []
        for index, (token, weight) in enumerate(zip(panel.tokens, weights, strict=True)):
            token_shares.append((token, float(weight) / largest_weight, index == query))
        yield name, largest_weight, token_shares


def shaded_file(panel: Panel, names: Mapping[str, str], query: int = MEAN_QUERY) -> str:
    """What `shading` shows, as an SVG file."""
    rows = []
    for name, largest_weight, token_shares in _shares_of_heads(panel, query):
        rows.append((f"{names.get(name, name)}, darkest: {largest_weight:.2f}", token_shares))
    return shaded_words(rows, SHADE, f"Attention: {panel.title}", rtl=panel.rtl)


def _chip(token: str, weight: float, share: float, is_query: bool) -> str:
    border = "1px solid color-mix(in srgb, currentColor 18%, transparent)"
    if is_query:
        border = "2px solid currentColor"
    colour = f"color-mix(in srgb, {SHADE} {70 * share:.0f}%, transparent)"
    return (
        f'<span dir="auto" title="{weight:.3f}" style="display:inline-block;line-height:1.5;'
        f"margin:0 2px 2px 0;padding:0 .3em;border-radius:3px;border:{border};"
        f'background:{colour}">{escape(token)}</span>'
    )


def weights_table(panel: Panel, name: str) -> pd.DataFrame:
    """One head's weights: a row per attending token, a column per attended one, numbered."""
    labels = [f"{index} {token}" for index, token in enumerate(panel.tokens)]
    return pd.DataFrame(
        panel.weights[name], index=pd.Index(labels, name="from \\ to"), columns=labels
    )


def strongest_links(panel: Panel, names: Mapping[str, str], top: int = 5) -> pd.DataFrame:
    """The largest weights of every head, one row each."""
    rows = []
    for name, weights in panel.weights.items():
        for flat_index in np.argsort(-weights, axis=None, kind="stable")[:top]:
            query, key = divmod(int(flat_index), len(panel.tokens))
            rows.append(
                (
                    names.get(name, name),
                    panel.tokens[query],
                    panel.tokens[key],
                    float(weights[query, key]),
                )
            )
    return pd.DataFrame(rows, columns=["Head", "From", "To", "Weight"])
