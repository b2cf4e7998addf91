"""Figures with one value per pair: agreement of languages, and attention between tokens."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple, Protocol
from unicodedata import bidirectional, category
from unicodedata import name as character_name

import numpy as np
import plotly.graph_objects as go

from headlab.charts.matrices import correlations_chart
from headlab.core import Bools, Floats, HeadlabError, percent_text
from headlab.pictures import LETTER_PART, SEQUENTIAL, png_of_shares
from headlab.plots.drawing import plotly_figure
from headlab.plots.style import bar, with_common_layout

# Figures with one value per pair of languages.


def agreement(rho: Floats, names: Sequence[str]) -> go.Figure:
    """Rank correlations of every pair of languages, on a colour scale from -1 to 1.

    Args:
        rho: float [language, language], NaN where a language's scores are all equal.
    """
    chart = correlations_chart("rank correlations", rho, names)
    return plotly_figure(chart)


# Attention of heads in one sentence.

MAX_SHOWN_TOKENS = 64
MAX_TOKENS_WITH_USUAL_LABELS = 28  # of a sentence; and with labels of the usual size in its map
# Control, format and private characters, among them those that turn the direction, and spaces
# besides the usual one.
UNSEEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs")
VISIBLE_SPACES = {" ": " ", "\n": "↵", "\t": "⇥"}
CIRCLE = "\u25cc"  # on which Unicode shows a mark that has no letter


def with_visible_characters(text: str) -> str:
    """A text in which everything can be seen.

    Characters that no font draws are written by name, like [U+202E], line breaks as ↵, tabs as ⇥. A
    vowel sign or an accent that a token begins with, without its letter, stands on a dotted circle.
    """
    return "".join(
        _visible_character(text[:place], character) for place, character in enumerate(text)
    )


def _visible_character(preceding: str, character: str) -> str:
    """A character of a text as `with_visible_characters` writes it.

    Args:
        preceding: What stands before it.
    """
    if character in VISIBLE_SPACES:
        return VISIBLE_SPACES[character]
    kind = category(character)
    has_no_letter = kind.startswith("M") and (
        preceding in ("", "##") or preceding.endswith(("▁", "]"))
    )
    if kind in UNSEEN or (
        has_no_letter and character_name(character, "").startswith("VARIATION SELECTOR")
    ):
        return f"[U+{ord(character):04X}]"
    if has_no_letter:
        return f"{CIRCLE}{character}"
    return character


class SentenceAttention(Protocol):
    """Attention of some heads in one sentence, as the worker sends it.

    The worker's class is `headlab.worker.schemas.Weights`.
    """

    @property
    def tokens(self) -> Sequence[str]:
        """Text of each token."""

    @property
    def ids(self) -> Sequence[int]:
        """Id of each token; empty where they are not known."""

    @property
    def weights(self) -> Mapping[str, Sequence[Sequence[float]]]:
        """Weights by head, float [query][key]."""

    @property
    def special(self) -> Sequence[int]:
        """Positions of special tokens."""

    @property
    def separators(self) -> Sequence[int]:
        """Positions of tokens that end or separate texts."""

    @property
    def truncated(self) -> bool:
        """Whether the sentence was longer."""

    @property
    def words(self) -> Sequence[str]:
        """Words of the sentence; empty where they are not known."""

    @property
    def places(self) -> Sequence[int]:
        """Index of each token's word, -1 for none; empty where the words are not known."""


@dataclass(frozen=True)
class Panel:
    """One sentence and the attention of some heads in it.

    Attributes:
        title: What names the sentence.
        tokens: Text of each token.
        weights: By head name, float [query, key]; rows sum to 1 unless the sentence was cut or
            tokens are left out.
        is_cut: Whether the sentence was longer.
        special: Positions of special tokens, such as <s> and </s>.
        words: Words of the sentence; empty where they are not known.
        word_indices: Index of each token's word, -1 for none; empty where the words are not known.
        separators: Positions of tokens that end or separate texts.
        ids: Of the tokens; empty where they are not known, and for words.
    """

    title: str
    tokens: tuple[str, ...]
    weights: Mapping[str, Floats]
    is_cut: bool = False
    special: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    word_indices: tuple[int, ...] = ()
    separators: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    @staticmethod
    def from_attention(title: str, attention: SentenceAttention) -> Panel:
        """The panel of a sentence, cut to 64 tokens.

        Args:
            title: What names the sentence.
            attention: Of some heads in it.

        Raises:
            HeadlabError: The shape of the weights does not match the tokens.
        """
        tokens = tuple(map(with_visible_characters, attention.tokens))
        weights = {name: np.asarray(rows, float) for name, rows in attention.weights.items()}
        for name, rows in weights.items():
            if rows.shape != (len(tokens), len(tokens)):
                raise HeadlabError(
                    f"head {name} looks from {rows.shape[0]} to {rows.shape[-1]} tokens, but the sentence has "
                    f"{len(tokens)}; this view shows heads that read one sequence",
                    code="head.not_one_sequence",
                )
        n = min(len(tokens), MAX_SHOWN_TOKENS)
        weights_cut = {name: rows[:n, :n].round(3) for name, rows in weights.items()}
        return Panel(
            title=title,
            tokens=tokens[:n],
            weights=weights_cut,
            is_cut=attention.truncated or n < len(tokens),
            special=tuple(position for position in attention.special if position < n),
            words=tuple(map(with_visible_characters, attention.words)),
            word_indices=tuple(attention.places)[:n],
            separators=tuple(position for position in attention.separators if position < n),
            ids=tuple(attention.ids)[:n],
        )

    def heads(self) -> list[Panel]:
        """One panel per head."""
        return [replace(self, weights={name: rows}) for name, rows in self.weights.items()]

    def with_mean(self, name: str) -> Panel:
        """The same with the mean of its heads, as one more head."""
        mean = np.mean(list(self.weights.values()), axis=0)
        return replace(self, weights={**self.weights, name: mean.round(3)})

    def without_special(self) -> Panel:
        """The same without rows and columns of special tokens; other weights stay as they are.

        Unchanged where there is nothing else.
        """
        positions = range(len(self.tokens))
        remaining = [position for position in positions if position not in self.special]
        remaining = remaining or list(positions)
        remaining_weights = {
            name: rows[np.ix_(remaining, remaining)] for name, rows in self.weights.items()
        }
        places = (
            tuple(self.word_indices[position] for position in remaining)
            if self.word_indices
            else ()
        )
        ids = tuple(self.ids[position] for position in remaining) if self.ids else ()
        tokens = tuple(self.tokens[position] for position in remaining)
        return replace(
            self,
            tokens=tokens,
            weights=remaining_weights,
            special=(),
            separators=(),
            word_indices=places,
            ids=ids,
        )

    def in_words(self) -> Panel:
        """The same word by word.

        Attention to a word is the sum over its tokens, from it their mean.

        As in Clark et al. 2019 (What Does BERT Look At?, section 4.1): rows still sum to 1.  A
        token of no word stays.  Unchanged where the words are not known, as where a tokenizer takes
        a whole text for one.
        """
        word_indices = set(self.word_indices) - {-1}
        is_one_word_of_several = len(word_indices) == 1 and len(self.title.split()) > 1
        if not word_indices or is_one_word_of_several:
            return self
        positions_by_unit: dict[tuple[int, int], list[int]] = {}  # of a word or of a token of none
        for position, word in enumerate(self.word_indices):
            unit = (word, -1) if word >= 0 else (word, position)
            positions_by_unit.setdefault(unit, []).append(position)
        units = list(positions_by_unit.values())
        sums = np.zeros((len(units), len(self.word_indices)))
        texts = []
        special = []
        for row, positions in enumerate(units):
            sums[row, positions] = 1.0
            first = positions[0]
            word = self.word_indices[first]
            texts.append(self.tokens[first] if word < 0 else self.words[word])
            if first in self.special:
                special.append(row)
        means = sums / sums.sum(axis=1, keepdims=True)
        weights = {name: (means @ rows @ sums.T).round(3) for name, rows in self.weights.items()}
        return replace(
            self,
            tokens=tuple(texts),
            weights=weights,
            special=tuple(special),
            words=(),
            word_indices=(),
            separators=(),
            ids=(),
        )

    def of_maps(self, maps: Mapping[str, str]) -> Panel:
        """The same sentence with other heads.

        They come from what the worker sends of every head in `maps`.
        """
        size = math.isqrt(len(b64decode(next(iter(maps.values()), ""))))
        n = len(self.tokens)
        weights = {
            name: np.frombuffer(b64decode(text), np.uint8).reshape(size, size)[:n, :n] / 255
            for name, text in maps.items()
        }
        return replace(self, weights=weights)

    @property
    def rtl(self) -> bool:
        """Whether its text runs from right to left.

        The first letter outside special tokens tells.
        """
        letters = (
            c
            for position, token in enumerate(self.tokens)
            if position not in self.special
            for c in token
        )
        return next(
            (kind != "L" for kind in map(bidirectional, letters) if kind in ("L", "R", "AL")), False
        )

    def thumbnail(self, name: str) -> str:
        """A head's weights as a picture (see `pictures.picture`), laid out as its map is.

        The largest weight is darkest.
        """
        rows = self.weights[name]
        return png_of_shares((rows[:, ::-1] if self.rtl else rows) / (rows.max(initial=0.0) or 1.0))

    def on_special(self, name: str) -> dict[str, float]:
        """Mean share of a head's weight on each special token, by its text.

        Shares are added up where a text occurs again.
        """
        shares: dict[str, float] = {}
        for position in self.special:
            mean = float(self.weights[name][:, position].mean())
            shares[self.tokens[position]] = shares.get(self.tokens[position], 0.0) + mean
        return shares

    def largest_on_special(self, name: str) -> tuple[int, int]:
        """How many tokens give a special token their largest weight: alone, and in a tie."""
        is_special = np.isin(np.arange(len(self.tokens)), self.special)
        weights = self.weights[name]
        largest_special = weights[:, is_special].max(axis=1, initial=-1.0)
        largest_other = weights[:, ~is_special].max(axis=1, initial=-1.0)
        alone = int((largest_special > largest_other).sum())
        tied = int((largest_special == largest_other).sum())
        return alone, tied


def special_token_texts(panels: Sequence[Panel], names: Mapping[str, str]) -> list[str]:
    """For each head, how much of its weight special tokens get, sentence by sentence.

    Args:
        panels: The sentences; those without special tokens are left out.
        names: What heads are called.

    Returns:
        A text per head; empty if no sentence has special tokens.
    """
    panels_with_special = [panel for panel in panels if panel.special]
    heads = dict.fromkeys(name for panel in panels_with_special for name in panel.weights)
    texts = []
    for name in heads:
        by_sentence = "; ".join(_on_special(panel, name) for panel in panels_with_special)
        texts.append(f"{names.get(name, name)}: {by_sentence}")
    return texts


def _on_special(panel: Panel, name: str) -> str:
    shares = panel.on_special(name)
    (alone, tied) = panel.largest_on_special(name)
    shares_by_token = ", ".join(f"{token} {percent_text(share)}" for token, share in shares.items())
    ties = f", {tied} in a tie" if tied else ""
    largest_text = f"{alone} of {len(panel.tokens)} tokens give one their largest weight{ties}"
    return f"{panel.title} {percent_text(sum(shares.values()))} ({shares_by_token}), {largest_text}"


PREVIOUS, NEXT, INDUCTION, SAME, SEPARATOR, GIVEN = LINKS = (
    "to the previous token",
    "to the next token",
    "to what followed the same token before (induction)",
    "to the same token elsewhere",
    "to a separator",
    "to a given token",
)
PATTERNS = (PREVIOUS, NEXT, INDUCTION, SEPARATOR)
"""Kinds of link that a head makes from one token after the other, rather than once in a sentence."""


class Link(NamedTuple):
    """A weight, and the positions of the token that looks and of the token looked at."""

    weight: float
    query: int
    key: int


class LinksOfKind(NamedTuple):
    """A head's links of one kind in one sentence.

    Attributes:
        strongest: The largest weight among them.
        mean: Of the tokens that have such a link, the mean of what each gives to them.
        looking_tokens: How many tokens have such a link.
    """

    strongest: Link
    mean: float
    looking_tokens: int


def links_of_kind(panel: Panel, name: str, kind: str, token: str = "") -> LinksOfKind | None:
    """A head's links of one kind in a sentence; None where a sentence has no such link.

    Special tokens do not count as looking, nor as neighbours, since many heads rest on them.

    Args:
        panel: The sentence.
        name: Of the head.
        kind: One of LINKS.
        token: For GIVEN, in any case and without the tokenizer's marks of words; a letter also
            stands for its parts.
    """
    fits = _pairs_of_kind(panel, kind, token)
    looks = fits.any(axis=1)
    if not looks.any():
        return None
    weights = panel.weights[name]
    flat_index = int(np.where(fits, weights, -1.0).argmax())
    query, key = divmod(flat_index, len(panel.tokens))
    weight_by_token = np.where(fits, weights, 0.0).sum(axis=1)[looks]
    return LinksOfKind(
        strongest=Link(float(weights[query, key]), query, key),
        mean=float(weight_by_token.mean()),
        looking_tokens=int(looks.sum()),
    )


def strongest_link(panel: Panel, name: str, kind: str, token: str = "") -> Link | None:
    """A head's largest weight among links of one kind; None where a sentence has no such link.

    Arguments as of `links_of_kind`.
    """
    links = links_of_kind(panel, name, kind, token)
    if links is None:
        return None
    return links.strongest


def _pairs_of_kind(panel: Panel, kind: str, token: str) -> Bools:
    """Which pairs of tokens are a link of a kind, bool [query, key].

    Arguments as of `links_of_kind`.
    """
    query, key = np.indices((len(panel.tokens),) * 2)
    fits: Bools
    if kind == PREVIOUS:
        fits = (key == query - 1) & ~np.isin(key, panel.special)
    elif kind == NEXT:
        fits = (key == query + 1) & ~np.isin(key, panel.special)
    elif kind == SEPARATOR:
        fits = np.isin(key, panel.separators)
    elif kind == GIVEN:
        bare_token = bare(token)
        texts = [bare(text) for text in panel.tokens]
        is_given = [bare_token in (text, LETTER_PART.sub("", text)) for text in texts]
        fits = np.array(is_given, dtype=bool)[key]
    elif kind == SAME:
        fits = _is_same_token(panel) & (key != query)
    else:
        follows_same_token = np.zeros(query.shape, dtype=bool)
        follows_same_token[:, 1:] = _is_same_token(panel)[:, :-1]
        fits = follows_same_token & (key < query) & ~np.isin(key, panel.special)
    fits &= ~np.isin(query, panel.special)
    return fits


def _is_same_token(panel: Panel) -> Bools:
    """Whether two tokens are the same, in any case and without marks of words, bool [token, token]."""
    texts = np.array([bare(text) for text in panel.tokens])
    is_same: Bools = texts[:, None] == texts[None, :]
    if panel.ids:  # the same part of two letters is one token
        ids = np.array(panel.ids)
        is_same |= ids[:, None] == ids[None, :]
    return is_same


def bare(token: str) -> str:
    """A token in one case, without marks of words (SentencePiece's, BERT's, byte-level ones)."""
    return token.lstrip("▁Ġ").removeprefix("##").removeprefix(CIRCLE).casefold()


def attention_map(panel: Panel, name: str) -> go.Figure:
    """One head's weights: a row per token that looks, a column per token looked at.

    Columns run in the text's direction.
    """
    # Plotly would read <s> as markup.
    texts = [escape(token[:24], quote=False) for token in panel.tokens]
    positions = list(range(len(texts)))
    are_many = len(texts) > MAX_TOKENS_WITH_USUAL_LABELS
    ticks = {"tickvals": positions, "ticktext": texts, "showgrid": False, "zeroline": False}
    ticks |= {"tickfont": {"size": 9 if are_many else 12}}
    figure = go.Figure(
        go.Heatmap(
            z=panel.weights[name],
            customdata=[[(query, key) for key in texts] for query in texts],
            colorscale=SEQUENTIAL,
            zmin=0,
            xgap=1,
            ygap=1,
            hovertemplate="%{customdata[0]} looks at %{customdata[1]}: %{z:.3f}<extra></extra>",
            colorbar=bar("weight"),
        )
    )
    figure.update_yaxes(autorange="reversed", **ticks)
    figure.update_xaxes(
        side="top",
        tickangle=-90 if are_many else -60,
        autorange="reversed" if panel.rtl else True,
        **ticks,
    )
    return with_common_layout(
        figure, height=max(260, 110 + (14 if are_many else 24) * len(positions))
    )
