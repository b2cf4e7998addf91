"""Attention as pictures: BertViz's head view with local scripts, shaded tokens, and a table of weights."""

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
from headlab.dashboard.panels.attended_sentences import COLOURS
from headlab.plots.matrices import Panel
from headlab.report.svg import shaded

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
