"""How pages write languages, heads and external text, and links that carry parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import streamlit as st

from headlab.core import CHANGES, Head, HeadlabError
from headlab.tasks import language_title as language_title

# How languages and heads are written on the pages and in links.

MAX_TITLES = 3  # languages that a sentence names in full; of more it lists the codes


def languages_words(languages: Sequence[str], chosen_languages: Collection[str] = ()) -> str:
    """Which languages a sentence is of: 'German (de) and Thai (th)', or '4 languages (de, fi, hu, th)'.

    Args:
        languages: Codes of the languages that something was computed in.
        chosen: Codes of the languages chosen in the sidebar; many that are exactly these are called so.
    """
    if len(languages) <= MAX_TITLES:
        titles = [language_title(code) for code in languages]
        return " and ".join(filter(None, [", ".join(titles[:-1]), *titles[-1:]]))
    if set(languages) == set(chosen_languages):
        return f"the {len(languages)} languages chosen"
    return f"{len(languages)} languages ({', '.join(languages)})"


def counted(count: float, noun: str) -> str:
    """'1 head', '2 heads'."""
    return f"{count:g} {noun}{'s' * (count != 1)}"


def head_key(head: Head) -> str:
    """A head as links and tables write it: stack.layer.head, counted from 0."""
    return f"{head.stack}.{head.layer}.{head.head}"


def head_from(key: str) -> Head:
    """Inverse of `head_key`. Raises HeadlabError for text that is not a head."""
    stack, _, rest = key.partition(".")
    layer, _, number = rest.partition(".")
    if not (
        stack and layer.isascii() and layer.isdigit() and number.isascii() and number.isdigit()
    ):
        raise HeadlabError(
            f"{key!r} is not a head; write stack.layer.head, for example encoder.3.7",
            code="head.malformed",
        )
    return Head(stack, int(layer), int(number))


def head_words(head: Head, several: bool = False) -> str:
    """'Layer 3, head 7'; with the stack's name if a model has several."""
    return (
        f"{head.stack.capitalize()} layer {head.layer}, head {head.head}"
        if several
        else f"Layer {head.layer}, head {head.head}"
    )


CHANGE_WORDS = dict(
    zip(CHANGES, ("now right", "now wrong", "still wrong, differently"), strict=True)
)
"""What a mask did to an answer, in words."""


# Links between pages, with parameters.

PAGES = {
    "overview": ("Overview", ":material/space_dashboard:"),
    "heads": ("Heads", ":material/grid_on:"),
    "languages": ("Languages", ":material/translate:"),
    "roles": ("Roles", ":material/category:"),
    "gates": ("Gates", ":material/door_open:"),
    "prune": ("Prune", ":material/content_cut:"),
    "masks": ("Masks", ":material/compare:"),
    "experiments": ("Experiments", ":material/science:"),
    "attention": ("Attention", ":material/visibility:"),
    "jobs": ("Jobs", ":material/checklist:"),
    "own": ("Bring your own", ":material/upload_file:"),
}


def page_link(
    name: str, label: str, params: Mapping[str, str | list[str]] | None = None, icon: str = ""
) -> None:
    """A link to a page with `more` parameters; the shared choice is carried along automatically."""
    st.page_link(
        f"pages/{name}.py",
        label=label,
        icon=icon or PAGES[name][1],
        query_params=dict(params or {}),
    )


SHORT_KEY = 12  # characters of a report's key, enough to tell reports apart in a link
PRUNE_TAB, PRUNE_TABS = "tool", ("Switch heads", "Find a smaller model")  # of the Prune page
FRONT_PARAM = "front"  # of a link to the Prune page: the front that it opens


def report_params(experiment: str, key: str) -> dict[str, str]:
    """Parameters of a link to the Experiments page that open exactly this report.

    Args:
        experiment: Key of the experiment.
        key: Full key of the report.
    """
    return {"experiment": experiment, "report": key[:SHORT_KEY]}


def front_params(key: str) -> dict[str, str]:
    """Parameters of a link to the Prune page that open the tab of fronts with exactly this one.

    Args:
        key: Full key of the front's report.
    """
    return {PRUNE_TAB: PRUNE_TABS[1], FRONT_PARAM: key[:SHORT_KEY]}


# External text, shown verbatim.

MARKDOWN_MARKS = re.compile(r"([\\`*_\[\]<>~$:#|&])")


def plain_name(name: str) -> str:
    """A name without characters that file systems may reject."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[-60:]


def plain(text: str) -> str:
    """A text as Markdown that has no effect: no images, formulas, emphasis or HTML; a bare address may be a link."""
    return MARKDOWN_MARKS.sub(r"\\\1", text)
