"""The map of one language as a picture file that says itself what it shows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headlab import __version__
from headlab.core import (
    HeadlabError,
    display_unit,
    fingerprint_of,
    nouns_of_kinds,
    part,
    replacement_of,
)
from headlab.methods import remarks
from headlab.pictures import HeadMap, maps_of_scores
from headlab.results import HeadScores
from headlab.tasks import language_title

LEANS_NOTE = "Signs rest on samples alone; colours lean on slopes too."
FINGERPRINT_LENGTH = 12
"""Characters of the weights' fingerprint that a caption gives."""


def map_picture(scores: Mapping[str, HeadScores], language: str) -> bytes:
    """The map of one language as a PNG file with its caption.

    Its marks are corrected for the heads of all the scores, and its colours are on their common
    scale.

    Args:
        scores: By language.
        language: Code of the one that is drawn.

    Returns:
        The file's bytes. Letters that no font on this machine has are question marks.
    """
    from headlab.charts import static  # imports matplotlib
    from headlab.charts.head_map import head_map_chart, marks_in_words

    head_map = maps_of_scores(scores)[language]
    words_on_map = filter(None, (scale_in_words(head_map), marks_in_words(head_map)))
    caption = map_caption(scores[language], "; ".join(words_on_map))
    chart = head_map_chart(f"{_subject(scores[language])}, {language}", head_map)
    try:
        return static.captioned_png(chart, caption)
    except HeadlabError:
        return static.captioned_png(chart, with_known_letters(caption))


def with_known_letters(text: str) -> str:
    """The text with question marks for the letters that no font on this machine has.

    Args:
        text: That is to be drawn.
    """
    from headlab.charts.fonts import families_for  # imports matplotlib

    known_letters = []
    for letter in text:
        try:
            families_for([letter])
        except HeadlabError:
            letter = "?"
        known_letters.append(letter)
    return "".join(known_letters)


def scale_in_words(head_map: HeadMap) -> str:
    """Where the colours end, if values lie beyond; else nothing.

    Args:
        head_map: The map.
    """
    finite_values = head_map.values[np.isfinite(head_map.values)]
    if not (np.abs(finite_values) > head_map.limit).any():
        return ""
    end = f"±{head_map.limit:.3g}" if head_map.signed else f"{head_map.limit:.3g}"
    return f"Values beyond {end} have the colour of the scale's end"


def _subject(scores: HeadScores) -> str:
    """What is scored, as the first words of a caption."""
    noun = scores.grid.noun
    return "Attention heads" if scores.grid.has_only_heads else f"{noun[0].upper()}{noun[1:]}"


def map_caption(scores: HeadScores, words_on_map: str) -> str:
    """What a picture of a map shows and rests on.

    Args:
        scores: That are drawn.
        words_on_map: What the map's scale and signs mean; empty for nothing.
    """
    model = part(scores.spec, "model", "name")
    task = part(scores.spec, "task", "name")
    size = part(scores.spec, "task", "size")
    split = part(scores.spec, "task", "split")
    bases = [f"{size:,} {split} examples"] if isinstance(size, int) else []
    if scores.samples is not None:
        for_each = "a head" if scores.grid.has_only_heads else "each"
        bases.append(f"{int(np.median(scores.samples)):,} samples {for_each}")
    ablation = scores.spec.get("ablation", "zero")
    weights = str(fingerprint_of(scores.spec))[:FINGERPRINT_LENGTH]
    sentences = [
        f"{_subject(scores)} of {model} on {task}, {language_title(scores.language)}: values by "
        f"{scores.method} (estimand {scores.estimand}) in {display_unit(scores.unit)[1]}.",
        f"From {', '.join(bases)}." if bases else "",
        f"A removed {nouns_of_kinds(scores.grid.kinds)[0]} gives {replacement_of(ablation)}.",
        f"{words_on_map}." if words_on_map else "",
        LEANS_NOTE if scores.sample_means is not None else "",
        *(f"Caution: {remark}." for remark in remarks([scores])),
        f"Weights {weights}; headlab {__version__}.",
    ]
    return " ".join(filter(None, sentences))
