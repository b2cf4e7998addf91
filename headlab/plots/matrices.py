"""Figures with one value per pair: of languages, with their agreement, and of tokens, with heads' attention."""

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
from headlab.errors import HeadlabError
from headlab.pictures import PART, SEQUENTIAL, picture
from headlab.plots.drawing import plotly_figure
from headlab.plots.style import bar, finish
from headlab.records import Floats

# Figures with one value per pair of languages.


def agreement(rho: Floats, names: Sequence[str]) -> go.Figure:
    """Rank correlations of every pair of languages, on a colour scale from -1 to 1.

    rho: float [language, language], NaN where a language's scores are all equal.
    """
    chart = correlations_chart("rank correlations", rho, names)
    return plotly_figure(chart)


# Attention of heads in one sentence.

MAX_TOKENS, MOST_TOKENS = 64, 28  # of a sentence; and with labels of the usual size in its map
# Control, format and private characters, among them those that turn the direction, and spaces besides the usual one.
UNSEEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs")
SIGNS = {" ": " ", "\n": "↵", "\t": "⇥"}
CIRCLE = "\u25cc"  # on which Unicode shows a mark that has no letter


def visible(text: str) -> str:
    """A text in which everything can be seen.

    Characters that no font draws are written by name, like [U+202E], line breaks as ↵, tabs as ⇥. A
    vowel sign or an accent that a token begins with, without its letter, stands on a dotted circle.
    """
    return "".join(
        _visible_character(text[:place], character) for place, character in enumerate(text)
    )


def _visible_character(before: str, character: str) -> str:
    """A character of a text as `visible` writes it.  before: what stands before it."""
    if character in SIGNS:
        return SIGNS[character]
    kind = category(character)
    alone = kind.startswith("M") and (before in ("", "##") or before.endswith(("▁", "]")))
    if kind in UNSEEN or (alone and character_name(character, "").startswith("VARIATION SELECTOR")):
        return f"[U+{ord(character):04X}]"
    return f"{CIRCLE}{character}" if alone else character


class SentenceAttention(Protocol):
    """Attention of some heads in one sentence, as the worker sends it (`headlab.worker.schemas.Weights`)."""

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

    weights: by head name, float [query, key]; rows sum to 1 unless the sentence was cut or tokens are left out.
    special: positions of special tokens, such as <s> and </s>.  words, places: the words, and the index of each token's
    word, -1 for none; empty where they are not known.  separators: positions of tokens that end or separate texts.
    ids: of the tokens; empty where they are not known, and for words.
    """

    title: str
    tokens: tuple[str, ...]
    weights: Mapping[str, Floats]
    cut: bool = False
    special: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    separators: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()

    @staticmethod
    def of(title: str, attention: SentenceAttention) -> Panel:
        """The panel of a sentence, cut to 64 tokens.

        Args:
            title: What names the sentence.
            attention: Of some heads in it.

        Raises:
            HeadlabError: The shape of the weights does not match the tokens.
        """
        tokens = tuple(map(visible, attention.tokens))
        weights = {name: np.asarray(rows, float) for name, rows in attention.weights.items()}
        for name, rows in weights.items():
            if rows.shape != (len(tokens), len(tokens)):
                raise HeadlabError(
                    f"head {name} looks from {rows.shape[0]} to {rows.shape[-1]} tokens, but the sentence has "
                    f"{len(tokens)}; this view shows heads that read one sequence",
                    code="head.not_one_sequence",
                )
        n = min(len(tokens), MAX_TOKENS)
        kept = {name: rows[:n, :n].round(3) for name, rows in weights.items()}
        return Panel(
            title=title,
            tokens=tokens[:n],
            weights=kept,
            cut=attention.truncated or n < len(tokens),
            special=tuple(position for position in attention.special if position < n),
            words=tuple(map(visible, attention.words)),
            places=tuple(attention.places)[:n],
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
        """The same without rows and columns of special tokens; the rest of the weights stay as they are.

        Unchanged where there is nothing else.
        """
        left = [at for at in range(len(self.tokens)) if at not in self.special] or list(
            range(len(self.tokens))
        )
        kept = {name: rows[np.ix_(left, left)] for name, rows in self.weights.items()}
        places = tuple(self.places[at] for at in left) if self.places else ()
        ids = tuple(self.ids[at] for at in left) if self.ids else ()
        tokens = tuple(self.tokens[at] for at in left)
        return replace(
            self, tokens=tokens, weights=kept, special=(), separators=(), places=places, ids=ids
        )

    def in_words(self) -> Panel:
        """The same word by word: attention to a word is the sum over its pieces, attention from it their mean.

        As in Clark et al. 2019 (What Does BERT Look At?, section 4.1): rows still sum to 1.  A token of no word stays.
        Unchanged where the words are not known, as where a tokenizer takes a whole text for one.
        """
        known = set(self.places) - {-1}
        if not known or (len(known) == 1 and len(self.title.split()) > 1):
            return self
        own = [(place, -1 if place >= 0 else at) for at, place in enumerate(self.places)]
        parts = [
            [at for at, other in enumerate(own) if other == part] for part in dict.fromkeys(own)
        ]
        sums = np.array([[float(at in part) for at in range(len(own))] for part in parts])
        merged = {
            name: (sums / sums.sum(axis=1, keepdims=True) @ rows @ sums.T).round(3)
            for name, rows in self.weights.items()
        }
        texts = tuple(
            self.tokens[at] if self.places[at] < 0 else self.words[self.places[at]]
            for at, *_ in parts
        )
        special = tuple(at for at, part in enumerate(parts) if part[0] in self.special)
        return replace(
            self,
            tokens=texts,
            weights=merged,
            special=special,
            words=(),
            places=(),
            separators=(),
            ids=(),
        )

    def of_maps(self, maps: Mapping[str, str]) -> Panel:
        """The same sentence with other heads, from what the worker sends of every head in `maps`."""
        size = math.isqrt(len(b64decode(next(iter(maps.values()), ""))))
        n = len(self.tokens)
        every = {
            name: np.frombuffer(b64decode(text), np.uint8).reshape(size, size)[:n, :n] / 255
            for name, text in maps.items()
        }
        return replace(self, weights=every)

    @property
    def rtl(self) -> bool:
        """Whether its text runs from right to left: whether the first letter outside special tokens does."""
        letters = (
            c for at, token in enumerate(self.tokens) if at not in self.special for c in token
        )
        return next(
            (kind != "L" for kind in map(bidirectional, letters) if kind in ("L", "R", "AL")), False
        )

    def small(self, name: str) -> str:
        """A head's weights as a picture (see `pictures.picture`), its largest weight darkest; laid out as a map is."""
        rows = self.weights[name]
        return picture((rows[:, ::-1] if self.rtl else rows) / (rows.max(initial=0.0) or 1.0))

    def on_special(self, name: str) -> dict[str, float]:
        """Mean share of a head's weight on each special token, by its text; added up where a text occurs again."""
        shares: dict[str, float] = {}
        for place in self.special:
            mean = float(self.weights[name][:, place].mean())
            shares[self.tokens[place]] = shares.get(self.tokens[place], 0.0) + mean
        return shares

    def largest_on_special(self, name: str) -> tuple[int, int]:
        """How many tokens give a special token their largest weight: alone, and in a tie with another token."""
        where = np.isin(np.arange(len(self.tokens)), self.special)
        on, off = (
            self.weights[name][:, side].max(axis=1, initial=-1.0) for side in (where, ~where)
        )
        return int((on > off).sum()), int((on == off).sum())


def special_words(panels: Sequence[Panel], names: Mapping[str, str]) -> list[str]:
    """For each head, how much of its weight special tokens get, sentence by sentence; empty if there are none."""
    seen = [panel for panel in panels if panel.special]
    heads = dict.fromkeys(name for panel in seen for name in panel.weights)
    return [
        f"{names.get(name, name)}: {'; '.join(_on_special(panel, name) for panel in seen)}"
        for name in heads
    ]


def _on_special(panel: Panel, name: str) -> str:
    shares, (alone, tied) = panel.on_special(name), panel.largest_on_special(name)
    each = ", ".join(f"{token} {share:.0%}" for token, share in shares.items())
    ties = f", {tied} in a tie" if tied else ""
    most = f"{alone} of {len(panel.tokens)} tokens give one their largest weight{ties}"
    return f"{panel.title} {sum(shares.values()):.0%} ({each}), {most}"


PREVIOUS, NEXT, SAME, SEPARATOR, GIVEN = LINKS = (
    "to the previous token", "to the next token", "to the same token elsewhere", "to a separator", "to a given token"
)  # fmt: skip


class Link(NamedTuple):
    """A weight, and the positions of the token that looks and of the token looked at."""

    weight: float
    query: int
    key: int


def strongest_link(panel: Panel, name: str, kind: str, token: str = "") -> Link | None:
    """A head's largest weight among the links of one of LINKS; None where a sentence has no such link.

    Special tokens do not count as looking, nor as neighbours, since many heads rest on them.  token: for GIVEN, in any
    case and without the tokenizer's marks of words; a letter also stands for its parts.
    """
    query, key = np.indices((len(panel.tokens),) * 2)
    texts, plain = np.array([bare(text) for text in panel.tokens]), ~np.isin(key, panel.special)
    same = texts[key] == texts[query]
    if panel.ids:  # the same part of two letters is one token
        ids = np.array(panel.ids)
        same |= ids[key] == ids[query]
    wanted = bare(token)
    given = np.array([wanted in (text, PART.sub("", text)) for text in texts.tolist()], dtype=bool)
    fits = {
        PREVIOUS: (key == query - 1) & plain,
        NEXT: (key == query + 1) & plain,
        SAME: same & (key != query),
        SEPARATOR: np.isin(key, panel.separators),
        GIVEN: given[key],
    }[kind] & ~np.isin(query, panel.special)
    if not fits.any():
        return None
    at = int(np.where(fits, panel.weights[name], -1.0).argmax())
    return Link(float(panel.weights[name].flat[at]), *divmod(at, len(panel.tokens)))


def bare(token: str) -> str:
    """A token without its tokenizer's marks of words (SentencePiece's, BERT's, byte-level ones), in one case."""
    return token.lstrip("▁Ġ").removeprefix("##").removeprefix(CIRCLE).casefold()


def attention_map(panel: Panel, name: str) -> go.Figure:
    """One head's weights: a row per token that looks, a column per token looked at, in the text's direction."""
    texts = [
        escape(token[:24], quote=False) for token in panel.tokens
    ]  # Plotly reads <s> as markup
    at, many = list(range(len(texts))), len(texts) > MOST_TOKENS
    ticks = {"tickvals": at, "ticktext": texts, "showgrid": False, "zeroline": False}
    ticks |= {"tickfont": {"size": 9 if many else 12}}
    figure = go.Figure(
        go.Heatmap(
            z=panel.weights[name], customdata=[[(one, other) for other in texts] for one in texts],
            colorscale=SEQUENTIAL, zmin=0, xgap=1, ygap=1,
            hovertemplate="%{customdata[0]} looks at %{customdata[1]}: %{z:.3f}<extra></extra>",
            colorbar=bar("weight"),
        )
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed", **ticks)
    figure.update_xaxes(
        side="top",
        tickangle=-90 if many else -60,
        autorange="reversed" if panel.rtl else True,
        **ticks,
    )
    return finish(figure, height=max(260, 110 + (14 if many else 24) * len(at)))
