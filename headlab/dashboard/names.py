"""How pages write languages, heads and external text, and links that carry parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import streamlit as st

from headlab.core import CHANGE_KINDS, Head, HeadGrid, HeadlabError, player_name
from headlab.tasks import language_title as language_title

# How languages and heads are written on the pages and in links.

MAX_TITLES = 3
"""Languages that a sentence names in full; of more it lists the codes."""


def languages_words(languages: Sequence[str], chosen_languages: Collection[str] = ()) -> str:
    """The languages of a sentence: 'German (de) and Thai (th)', or '4 languages (de, …)'.

    Args:
        languages: Codes of the languages that something was computed in.
        chosen_languages: Codes of the languages chosen in the sidebar; many that are exactly these
            are called so.
    """
    if len(languages) <= MAX_TITLES:
        titles = [language_title(code) for code in languages]
        parts = [", ".join(titles[:-1]), *titles[-1:]]
        return " and ".join(part for part in parts if part)
    if set(languages) == set(chosen_languages):
        return f"the {len(languages)} languages chosen"
    return f"{len(languages)} languages ({', '.join(languages)})"


def count_words(count: float, noun: str) -> str:
    """'1 head', '2 heads', '1,000 heads'."""
    count_text = f"{count:,.0f}" if float(count).is_integer() else f"{count:g}"
    return f"{count_text} {noun}{'s' * (count != 1)}"


def stored_count_text(count: object, unknown_text: str = "?") -> str:
    """A count out of a stored result, with commas between thousands.

    Args:
        count: What is stored.
        unknown_text: What is said where that is no number.
    """
    return f"{count:,}" if isinstance(count, int) and count else unknown_text


HYPHEN_BEFORE_NUMBER = re.compile(r"(?<![\w.\-])-(?=\d)")


def with_minus_signs(text: str) -> str:
    """A text in which numbers below 0 have a minus sign, not a hyphen."""
    return HYPHEN_BEFORE_NUMBER.sub("\N{MINUS SIGN}", text)


def head_key(head: Head) -> str:
    """A head as files and keys write it: stack.layer.head, counted from 0."""
    return f"{head.stack}.{head.layer}.{head.head}"


HEAD_NUMBER_HELP = "Layer and head, both counted from 0: 3.7 is head 7 of layer 3."
PLAYER_NUMBER_HELP = "Layer and number in it, both counted from 0: 3.7 is number 7 of layer 3."


def head_number(head: Head, grid: HeadGrid) -> str:
    """A head as pages write it: '3.7' for layer 3, head 7; 'decoder.3.7' if there are several stacks.

    Of players of several kinds it says which: 'neurons.3.7'.
    """
    if len(grid.stacks) == 1:
        return f"{head.layer}.{head.head}"
    if grid.has_only_heads or len({stack.base for stack in grid.stacks}) > 1:
        return head_key(head)
    return f"{grid.kind_of(head)}.{head.layer}.{head.head}"


def head_from(text: str, grid: HeadGrid | None = None) -> Head:
    """The head of a key or of a number: the inverse of `head_key` and `head_number`.

    Args:
        text: The key; of a model with one stack, the number too.
        grid: The model's heads; None where only keys can come.

    Raises:
        HeadlabError: The text is not a head.
    """
    key = text
    if grid is not None and len(grid.stacks) == 1 and text.count(".") == 1:
        key = f"{grid.stacks[0].name}.{text}"
    stack, _, rest = key.partition(".")
    if grid is not None and not grid.has_only_heads and stack in grid.kinds:
        stack = next(part.name for part in grid.stacks if part.kind == stack)
    layer, _, number = rest.partition(".")
    are_numbers = all(text.isascii() and text.isdigit() for text in (layer, number))
    if not stack or not are_numbers:
        raise HeadlabError(
            f"{text!r} is not a head; write stack.layer.head, for example encoder.3.7",
            code="head.malformed",
        )
    return Head(stack, int(layer), int(number))


def head_words(head: Head, grid: HeadGrid) -> str:
    """A head in a title: 'Head 3.7', or 'Head decoder.3.7'; another player: 'Layer 3, …'."""
    if not grid.has_only_heads:
        return head_in_full(head, grid)
    return f"Head {head_number(head, grid)}"


def head_in_full(head: Head, grid: HeadGrid) -> str:
    """What a head's number stands for: 'Layer 3, head 7', or 'Encoder layer 3, head 7'.

    Of another player: 'Layer 3, group 1 of neurons: 192 neurons'.
    """
    if not grid.has_only_heads:
        name = player_name(grid, head)
        return name[0].upper() + name[1:]
    if len(grid.stacks) > 1:
        return f"{head.stack.capitalize()} layer {head.layer}, head {head.head}"
    return f"Layer {head.layer}, head {head.head}"


CHANGE_WORDS = dict(
    zip(CHANGE_KINDS, ("now right", "now wrong", "still wrong, differently"), strict=True)
)
"""What a mask did to an answer, in words."""


# Links between pages, with parameters.

PAGES = {
    "overview": ("Overview", ":material/space_dashboard:"),
    "heads": ("Heads", ":material/grid_on:"),
    "head": ("One head", ":material/center_focus_strong:"),
    "scatter": ("Scatter", ":material/scatter_plot:"),
    "pairs": ("Pairs", ":material/hub:"),
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
PAGES_BY_GROUP = {
    "Look": ("overview", "heads", "head", "scatter", "languages", "attention", "roles"),
    "Prune": ("prune", "gates", "pairs"),
    "Compare": ("masks",),
    "Work": ("jobs", "experiments"),
    "Yours": ("own",),
}
"""The keys of `PAGES` by what one does there, in the order of the navigation."""


def page_link(
    name: str, label: str, params: Mapping[str, str | list[str]] | None = None, icon: str = ""
) -> None:
    """Draw a link to a page; the shared choice is carried along automatically.

    Args:
        name: A key of `PAGES`.
        label: Text of the link.
        params: Of the link, besides the choice.
        icon: A Material Symbols icon; empty for the page's own.
    """
    _, page_icon = PAGES[name]
    st.page_link(
        f"pages/{name}.py",
        label=label,
        icon=icon or page_icon,
        query_params=dict(params or {}),
    )


CHOICE_KEY = "_choice"
"""Session key of the choice in the sidebar (`headlab.dashboard.frame.Choice`)."""
SHORT_KEY = 12  # characters of a report's key, enough to tell reports apart in a link
PRUNE_TAB = "tool"
PRUNE_TABS = ("Switch heads", "Find a smaller model")  # of the Prune page
FRONT_PARAM = "front"  # of a link to the Prune page: the front that it opens
POINT_PARAM = "point"  # the model of the front that is pinned
ASK_PARAM = "ask"  # what the form for a front says


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


ADVICE_OF_COMMANDS = (
    (
        re.compile(r"say which class is which label with --label-map .*?in the sidebar[^)]*\)"),
        "say which class is which label under Label map in the sidebar",
    ),
    (re.compile(r" \(or give --data\)"), ""),
    (re.compile(r" by --data or \$HEADLAB_DATA"), " by HEADLAB_DATA"),
    (re.compile(r" or give --data, or name a CoNLL-U file of your own with --conllu"), ""),
)
"""Advice in error messages that only a command can follow, and what a page says in its place."""


def error_words(message: str) -> str:
    """An error's message as pages say it, without advice that only a command can follow."""
    for advice, advice_of_page in ADVICE_OF_COMMANDS:
        message = advice.sub(advice_of_page, message)
    return message


def plain(text: str) -> str:
    """A text as Markdown that has no effect: no images, formulas, emphasis or HTML.

    A bare address may be a link.
    """
    return MARKDOWN_MARKS.sub(r"\\\1", text)
