"""What the tokens and words of a batch are asked: where each should look, and how often chance would be right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from headlab.batches import Batch
from headlab.gates import Model, excluded_ids, sides
from headlab.roles.given import NO_WORD, Given, causal, special_ids
from headlab.roles.table import FIRST, INDUCTION, OFFSETS, RARE, SAME, SEPARATOR, SYNTACTIC, position

# Among what the largest weight is sought: all real tokens, those that are no special ones, these without the sentence's
# first (where attention without an aim goes), or words.
Among = Literal["all", "inner", "aimed", "words"]


@dataclass(frozen=True)
class Question:
    """One role, put to a batch.

    right: bool [row, query, key].  asked: bool [row, query].  chance: float64 [row, query], share of the targets that
    are right, or 0 and 1 of a fixed offset.  Queries and keys are words for `among` "words", else tokens.
    """

    role: str
    among: Among
    right: torch.Tensor
    asked: torch.Tensor
    chance: torch.Tensor


@dataclass(frozen=True)
class Scene:
    """A stack's side of a batch: who looks, what can be looked at.

    looking: bool [row, query], real tokens.  targets: {among: bool [row, query, key]}.
    merge: of words, what turns weights into theirs: [row, word, query] (mean over a word's tokens) and
    [row, key, word] (sum); None where no words are known.  separator, first: bool [row, key].  counted: bool
    [row, key], targets of confidence.  square: whether queries and keys are the same tokens.
    """

    looking: torch.Tensor
    targets: Mapping[str, torch.Tensor]
    merge: tuple[torch.Tensor, torch.Tensor] | None
    separator: torch.Tensor
    first: torch.Tensor
    counted: torch.Tensor
    square: bool
    questions: tuple[Question, ...]


def scene(model: Model, given: Given, batch: Batch, stack: str, exclude: str, offsets: Mapping[str, int]) -> Scene:
    """A batch as one stack sees it, with everything it is asked.

    exclude: see `excluded_ids`.  offsets: {syntactic role: the fixed offset it is measured against}.
    """
    (ids, looking), (keys, real) = sides(model, batch.inputs, stack)
    square = stack != "cross"
    visible = (looking[:, :, None] & real[:, None, :]).clone()
    if causal(stack):
        visible &= torch.ones(visible.shape[1:], dtype=torch.bool, device=visible.device).tril()
    banned, of_separator = (torch.tensor(excluded_ids(model.tokenizer, name), device=ids.device)
                            for name in (exclude, "separator"))  # fmt: skip
    first = real & (real.long().cumsum(dim=1) == 1)
    special = _special(model, given, batch, stack, keys)
    quiet = special if square else _special(model, given, batch, "decoder", ids)
    targets = {"all": visible, "inner": visible & ~special[:, None, :]}
    targets["aimed"] = targets["inner"] & ~first[:, None, :]
    separator = torch.isin(keys, of_separator) & real
    asking = looking & ~quiet
    if given.second:
        asked, merge = [_induction(given, batch, ids, targets["aimed"], asking)], None
    else:
        asked = [*_of_tokens(targets, asking, separator, first)]
        asked += [*_positions(visible, asking), _same(ids, targets["inner"], asking)] if square else []
        merge, more = _of_words(given, batch, stack, targets, asking, offsets)
        asked += more
    counted = real & ~torch.isin(keys, banned)
    return Scene(looking, targets, merge, separator, first, counted, square, tuple(asked))


def _induction(given: Given, batch: Batch, ids: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor) -> Question:
    """Of sentences given twice: the token after an earlier one like one's own. The first time asks nothing."""
    here = torch.arange(ids.shape[1], device=ids.device)
    same = ids[:, :, None] == ids[:, None, :]
    right = torch.zeros_like(same)
    right[:, :, 1:] = same[:, :, :-1]
    right &= targets & (here[None, :] < here[:, None])
    before = torch.tensor([given.second[row] for row in batch.rows.tolist()], device=ids.device)
    number = batch.inputs["attention_mask"].cumsum(dim=1) - 1
    return _uniform(INDUCTION, "aimed", right, targets, asking & (number >= before[:, None]))


def _of_words(
    given: Given,
    batch: Batch,
    stack: str,
    targets: dict[str, torch.Tensor],
    asking: torch.Tensor,
    offsets: Mapping[str, int],
) -> tuple[tuple[torch.Tensor, torch.Tensor] | None, list[Question]]:
    """What merges a stack's tokens to words, and the questions about words; none where the words are not known."""
    if stack != given.stacks[0] or not any(given.words):
        return None, []
    place = _placed(given.places, batch, asking.shape[1], NO_WORD)
    merge, targets["words"] = _merging(place, causal(stack))
    rare = _rare(given, batch, place, targets["inner"], asking)
    return merge, [rare, *_syntax(given, batch, targets["words"], offsets)]


def _of_tokens(
    targets: Mapping[str, torch.Tensor], asking: torch.Tensor, separator: torch.Tensor, first: torch.Tensor
) -> Iterator[Question]:
    visible = targets["all"]
    for role, where in ((SEPARATOR, separator), (FIRST, first)):
        yield _uniform(role, "all", where[:, None, :] & visible, visible, asking)


def _positions(visible: torch.Tensor, asking: torch.Tensor) -> Iterator[Question]:
    here = torch.arange(visible.shape[1], device=visible.device)
    away = here[None, :] - here[:, None]
    for offset in OFFSETS:
        yield _uniform(position(offset), "all", (away == offset) & visible, visible, asking)


def _same(ids: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor) -> Question:
    other = ~torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
    return _uniform(SAME, "inner", (ids[:, :, None] == ids[:, None, :]) & other & targets, targets, asking)


def _rare(given: Given, batch: Batch, place: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor) -> Question:
    rare = torch.zeros_like(place, dtype=torch.bool)
    for row, sentence in enumerate(batch.rows.tolist()):
        of_word = torch.tensor(
            [*given.rare[sentence], 0], dtype=torch.bool, device=place.device
        )  # the last: of no word
        rare[row] = of_word[place[row]]
    return _uniform(RARE, "inner", rare[:, None, :] & targets, targets, asking)


def _uniform(role: str, among: Among, right: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor) -> Question:
    """A question whose chance is to pick any target alike; asked where some but not all targets are right."""
    chance = right.sum(dim=2, dtype=torch.float64) / targets.sum(dim=2, dtype=torch.float64).clamp(min=1)
    return Question(role, among, right, asking & (chance > 0) & (chance < 1), chance)


def _syntax(given: Given, batch: Batch, targets: torch.Tensor, offsets: Mapping[str, int]) -> Iterator[Question]:
    size = (len(batch.rows), targets.shape[1])
    asked = [given.asked(sentence) for sentence in batch.rows.tolist()]
    for role in SYNTACTIC:
        right = np.zeros((*size, size[1]), dtype=bool)
        chance = np.zeros(size)
        for row, wants in enumerate(asked):
            for word, found in wants.get(role, {}).items():
                right[row, word, list(found)] = True
                chance[row, word] = word + offsets[role] in found
        as_tensor = torch.as_tensor(right, device=targets.device)
        yield Question(role, "words", as_tensor, as_tensor.any(dim=2), torch.as_tensor(chance, device=targets.device))


def _merging(place: torch.Tensor, causal: bool) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Matrices that merge tokens to words, and which word may look at which."""
    words = torch.arange(int(place.max()) + 1 if bool((place >= 0).any()) else 1, device=place.device)
    sums = (place[:, :, None] == words).float()
    means = sums.transpose(1, 2) / sums.sum(dim=1).clamp(min=1)[:, :, None]
    there = sums.any(dim=1)
    targets = there[:, :, None] & there[:, None, :]
    return (means, sums), targets & (words[None, :] <= words[:, None]) if causal else targets


def _special(model: Model, given: Given, batch: Batch, stack: str, ids: torch.Tensor) -> torch.Tensor:
    """Which tokens of a side are special, bool [row, token]; padding counts as such."""
    if stack == "decoder" and model.module.config.is_encoder_decoder:
        return torch.isin(ids, torch.tensor(sorted(special_ids(model)), device=ids.device))
    return _placed(given.special, batch, ids.shape[1], 1).bool()


def _placed(rows: Sequence[Sequence[int]], batch: Batch, width: int, filler: int) -> torch.Tensor:
    """Numbers of every token of a batch, int [row, token], as wide as its tensors and padded on the same side."""
    real = batch.inputs["attention_mask"].bool().cpu()
    out = torch.full((len(batch.rows), width), filler)
    for row, sentence in enumerate(batch.rows.tolist()):
        out[row, real[row]] = torch.tensor(rows[sentence])
    return out.to(batch.inputs["attention_mask"].device)
