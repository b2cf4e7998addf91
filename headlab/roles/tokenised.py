"""Sentences as a model receives them, and the questions about their tokens: where each should attend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from headlab.core import Bools, Ints
from headlab.evaluation import (
    Batch,
    OmissionsByExample,
    Pairs,
    Rows,
    encode,
    encode_words,
    lengths,
    longest,
    omitted_from_texts,
    pad,
)
from headlab.hooks import Model, excluded_ids, needs_of, sides, started, tokens_note
from headlab.models import TokenNeeds, lacks_padding_mask, spaced, token_needs, tokenise
from headlab.roles.sentences import Frequencies, Sentences, Wanted, wanted
from headlab.roles.table import (
    FIRST,
    INDUCTION,
    OFFSETS,
    RARE,
    SAME,
    SEPARATOR,
    SYNTACTIC,
    position,
)
from headlab.tasks import Example

# Sentences as a model receives them: tokens, the word of each, and which words are complete.

NO_WORD = -1
# Languages written without spaces, so a text's words are not known.
UNSPACED = ("zh", "ja", "th", "lo", "km", "my", "yue", "bo", "dz")


@dataclass(frozen=True)
class Given:
    """Sentences, tokenised once.

    stacks: those that are evaluated.  places: for every token, the index of its word, -1 for none.  special: for every
    token, whether it is a special one.  words: of every sentence, empty if they are not known.  whole: for every word,
    whether all of it is there.  rare: for every word, whether it is its sentence's least frequent.  asked: sentence ->
    result of `sentences.wanted`, recomputed each time, as it takes more memory than the trees.  make: rows -> model
    inputs, padded.  lengths: int [sentence].  second: for repeated sentences, number of tokens before the repetition;
    else empty.
    """

    ids: Rows
    stacks: tuple[str, ...]
    make: Callable[[Ints], dict[str, torch.Tensor]]
    lengths: Ints
    places: Rows
    special: Rows
    words: tuple[tuple[str, ...], ...] = ()
    whole: tuple[Bools, ...] = ()
    rare: Rows = field(default_factory=list)
    asked: Callable[[int], Mapping[str, Wanted]] = lambda _: {}
    notes: tuple[str, ...] = ()
    second: tuple[int, ...] = ()

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of the given sentences, padded to the longest of them."""
        return self.make(rows)

    def __len__(self) -> int:
        return len(self.lengths)


def read(model: Model, sentences: Sentences, frequencies: Frequencies | str) -> Given:
    """The sentences as the model receives them.

    Args:
        model: The model whose heads are studied.
        sentences: Trees, or examples of a task.
        frequencies: Frequencies of words, or why there are none.

    Raises:
        HeadlabError: For a model that does not fit.
    """
    tokenise_sentences = _trees if sentences.trees else _examples
    given = tokenise_sentences(model, sentences, frequencies)
    note = tokens_note(model, needs_of_sentences(model, sentences))
    if note:
        given = replace(given, notes=(*given.notes, f"{note[0].upper()}{note[1:]}."))
    return given


def needs_of_sentences(model: Model, sentences: Sentences) -> TokenNeeds:
    """What a model is given of sentences beyond its tokenizer's output."""
    if sentences.trees:
        return token_needs(
            model.missing_segment_ids,
            model.word_spaces,
            pairs=False,
            words=True,
            mask=lacks_padding_mask(model.tokenizer),
        )
    return needs_of(model, sentences.examples)


def causal(stack: str) -> bool:
    """Whether the tokens of a stack see only those before them."""
    return stack == "decoder"


def _trees(model: Model, sentences: Sentences, frequencies: Frequencies | str) -> Given:
    pairs = bool(model.module.config.is_encoder_decoder)
    stacks = ("encoder",) if pairs else tuple(stack.name for stack in model.grid.stacks)
    words = [tree.words for tree in sentences.trees]
    tokens, places, ends = _split(model, words)
    whole = [
        _whole(row, len(found), end) for row, found, end in zip(places, words, ends, strict=True)
    ]

    def asked(row: int) -> Mapping[str, Wanted]:
        return wanted(sentences.trees[row], whole[row], causal(stacks[0]))

    def make(rows: Ints) -> dict[str, torch.Tensor]:
        inputs = pad(model, tokens, rows)
        return inputs | started(model, len(rows)) if pairs else inputs

    rare, notes = _rarest(words, whole, frequencies)
    names = [tree.id for tree in sentences.trees]
    special = [[int(place == NO_WORD) for place in row] for row in places]
    if pairs:
        notes = (
            *notes,
            "Trees are of one language, so of this sequence-to-sequence model the encoder is judged alone.",
        )
    return Given(
        tokens["input_ids"], stacks, make, lengths(places), places, special, tuple(words), tuple(whole), rare, asked,
        (*_lost_words(names, whole, longest(model)), *notes),
    )  # fmt: skip


def _examples(model: Model, sentences: Sentences, frequencies: Frequencies | str) -> Given:
    """Examples of a task, tokenised as its evaluator does."""
    examples, stacks = sentences.examples, tuple(stack.name for stack in model.grid.stacks)
    notes: tuple[str, ...] = ("No trees were given: syntactic roles are not judged.",)
    make: Callable[[Ints], dict[str, torch.Tensor]]
    omitted: OmissionsByExample | None = None
    if examples[0].target is not None and sentences.task is not None:
        pairs = Pairs(model, sentences.task, examples, sentences.language)
        tokens = pairs.tokens
        make, long, omitted = pairs.tensors, pairs.lengths, pairs.omitted
    elif examples[0].words:
        tokens, _, _ = _split(model, [e.words for e in examples])
        make, long = _padded(model, tokens), lengths(tokens["input_ids"])
    else:
        second = None if all(e.pair is None for e in examples) else [e.pair or "" for e in examples]
        tokens = encode(model, texts := [e.text for e in examples], second)
        omitted = omitted_from_texts(model, tokens["input_ids"], texts, second)
        make, long = _padded(model, tokens), lengths(tokens["input_ids"])
    words, places, ends = _words_of(model, examples, tokens["input_ids"], sentences.language)
    whole = [
        _whole(row, len(found), end) for row, found, end in zip(places, words, ends, strict=True)
    ]
    rare, more = _rarest(words, whole, frequencies)
    lost_words = _lost_words([e.id for e in examples], whole, longest(model))
    omission_notes = lost_words if omitted is None else omitted.notes()
    if not any(words):
        more = (
            "Rare words are not judged: words are not known of pairs of texts, and in languages without spaces.",
        )
    if len({e.cluster for e in examples}) < len(examples):
        more = (
            *more,
            "Intervals treat each example as independent. Some belong to one group, so intervals are too narrow.",
        )
    ids = special_ids(model)
    special = [[int(token in ids) for token in row] for row in tokens["input_ids"]]
    return Given(
        tokens["input_ids"],
        stacks,
        make,
        long,
        places,
        special,
        tuple(words),
        tuple(whole),
        rare,
        notes=(*notes, *more, *omission_notes),
    )


def twice(model: Model, given: Given) -> Given:
    """Every sentence's tokens repeated once, after the special tokens it begins with; cut to the model's limit.

    For models with one stack.  Sentences without tokens are left out.
    """
    ids, special, second = list[list[int]](), list[list[int]](), list[int]()
    limit = longest(model)
    for row, flags in zip(given.ids, given.special, strict=True):
        begin = flags.index(0) if 0 in flags else len(flags)
        body = [token for token, flag in zip(row, flags, strict=True) if not flag][
            : (limit - begin) // 2
        ]
        if body:
            ids.append([*row[:begin], *body, *body])
            special.append([1] * begin + [0] * (2 * len(body)))
            second.append(begin + len(body))
    make = _padded(model, {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]})
    places = [[NO_WORD] * len(row) for row in ids]
    return Given(ids, given.stacks, make, lengths(ids), places, special, second=tuple(second))


def special_ids(model: Model) -> frozenset[int]:
    """Ids of tokens that represent no text; the unknown token represents some."""
    return frozenset(excluded_ids(model.tokenizer, "special")) - {model.tokenizer.unk_token_id}


def _split(
    model: Model, sentences: Sequence[Sequence[str]], *, of_texts: bool = False
) -> tuple[dict[str, Rows], Rows, list[int]]:
    """Tokens of sentences given as words, the word of each token, and the word at which each sentence was cut.

    Args:
        model: The model that is given the sentences.
        sentences: Words of each sentence.
        of_texts: Whether the words are those of a text, of which the first has no space before it.
    """
    spaces = model.word_spaces
    if of_texts and spaces == "every":
        spaces = "inner"
    encoded = encode_words(model, sentences, spaces=spaces)
    places = [
        [NO_WORD if place is None else int(place) for place in row] for row in encoded.word_ids
    ]
    return (
        encoded.columns,
        places,
        _ends(model, [spaced(words, spaces) for words in sentences], places),
    )


def _ends(model: Model, words: Sequence[Sequence[str]], places: Rows) -> list[int]:
    """The word at which each sentence was cut; -1 for those that were not."""
    out = [NO_WORD] * len(places)
    # A sentence with the maximum number of tokens was cut, or fits exactly.
    limit = longest(model)
    full = [row for row, found in enumerate(places) if len(found) >= limit]
    if full:
        uncut = tokenise(model.tokenizer, [list(words[row]) for row in full], split=True).columns
        edge = min if model.tokenizer.truncation_side == "left" else max
        for row, ids in zip(full, uncut["input_ids"], strict=True):
            if len(ids) > len(places[row]):
                out[row] = edge(
                    (place for place in places[row] if place != NO_WORD), default=NO_WORD
                )
    return out


def _words_of(
    model: Model, examples: Sequence[Example], ids: Rows, language: str
) -> tuple[list[tuple[str, ...]], Rows, list[int]]:
    """Words of texts, each token's word, the word at a cut; only if the words give the same tokens as the text."""
    spaced = language.split("-")[0] not in UNSPACED
    words = [
        e.words or (tuple(e.text.split()) if spaced and e.pair is None else ()) for e in examples
    ]
    if not any(words):
        return (
            [()] * len(examples),
            [[NO_WORD] * len(row) for row in ids],
            [NO_WORD] * len(examples),
        )
    texts = not any(example.words for example in examples)
    tokens, places, ends = _split(model, [found or ("",) for found in words], of_texts=texts)
    same = [
        found != () and own == row
        for found, own, row in zip(words, tokens["input_ids"], ids, strict=True)
    ]
    unknown = [[NO_WORD] * len(row) for row in ids]
    return (
        [found if good else () for found, good in zip(words, same, strict=True)],
        [row if good else other for row, other, good in zip(places, unknown, same, strict=True)],
        [end if good else NO_WORD for end, good in zip(ends, same, strict=True)],
    )


def _whole(places: Sequence[int], words: int, end: int) -> Bools:
    """Which words of a sentence are complete, bool [word]; the one at which it was cut counts as lost."""
    whole = np.zeros(words, dtype=bool)
    whole[sorted(set(places) - {NO_WORD})] = True
    if end != NO_WORD:
        whole[end] = False
    return whole


def _lost_words(names: Sequence[str], whole: Sequence[Bools], limit: int) -> tuple[str, ...]:
    """A note on words that are not there as a whole, about which nothing is asked; none if all are.

    Args:
        names: Of the sentences.
        whole: Of every sentence, which words are complete, bool [word].
        limit: Maximum number of tokens of a sentence.
    """
    counts = [int((~complete).sum()) for complete in whole]
    if not any(counts):
        return ()
    sentences = [name for name, count in zip(names, counts, strict=True) if count]
    return (
        f"{len(sentences)} of {len(whole)} sentences were cut to the model's {limit} tokens or hold words without a "
        f"token: {sum(counts)} words are lost, and nothing is asked about them ({', '.join(sentences):.200}).",
    )


def _rarest(
    words: Sequence[tuple[str, ...]], whole: Sequence[Bools], frequencies: Frequencies | str
) -> tuple[Rows, tuple[str, ...]]:
    """For every word, whether it is the least frequent of those that are there; and notes."""
    if isinstance(frequencies, str):
        return [[0] * len(found) for found in words], (
            f"Rare words are not judged: {frequencies}.",
        )
    out: Rows = []
    for found, there in zip(words, whole, strict=True):
        rare = iter(
            frequencies.rarest([word for word, good in zip(found, there, strict=True) if good])
        )
        out.append([int(next(rare)) if good else 0 for good in there])
    return out, ()


def _padded(model: Model, tokens: dict[str, Rows]) -> Callable[[Ints], dict[str, torch.Tensor]]:
    return lambda rows: pad(model, tokens, rows)


# Questions about the tokens and words of a batch: where each should attend, and how often chance is right.

# Keys among which the largest weight is sought: all real tokens, those that are not special, these without the first
# of the sentence (where idle attention goes), or words.
Among = Literal["all", "inner", "aimed", "words"]


@dataclass(frozen=True)
class Question:
    """One role, asked of a batch.

    right: bool [row, query, key].  asked: bool [row, query].  chance: float64 [row, query], share of the targets that
    are right, or 0 or 1 for a fixed offset.  Queries and keys are words if `among` is "words", else tokens.
    """

    role: str
    among: Among
    right: torch.Tensor
    asked: torch.Tensor
    chance: torch.Tensor


@dataclass(frozen=True)
class Scene:
    """One stack's view of a batch: the queries, and the keys they can attend to.

    looking: bool [row, query], real tokens.  targets: {among: bool [row, query, key]}.  merge: matrices that turn token
    weights into word weights: [row, word, query] (mean over a word's tokens) and [row, key, word] (sum); None if no
    words are known.  separator, first: bool [row, key].  counted: bool [row, key], targets of confidence.  square:
    whether queries and keys are the same tokens.
    """

    looking: torch.Tensor
    targets: Mapping[str, torch.Tensor]
    merge: tuple[torch.Tensor, torch.Tensor] | None
    separator: torch.Tensor
    first: torch.Tensor
    counted: torch.Tensor
    square: bool
    questions: tuple[Question, ...]


def scene(
    model: Model, given: Given, batch: Batch, stack: str, exclude: str, offsets: Mapping[str, int]
) -> Scene:
    """A batch as one stack sees it, with all its questions.

    exclude: see `excluded_ids`.  offsets: {syntactic role: the fixed offset it is compared with}.
    """
    (ids, looking), (keys, real) = sides(batch.inputs, stack)
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
        asked += (
            [*_positions(visible, asking), _same(ids, targets["inner"], asking)] if square else []
        )
        merge, more = _of_words(given, batch, stack, targets, asking, offsets)
        asked += more
    counted = real & ~torch.isin(keys, banned)
    return Scene(looking, targets, merge, separator, first, counted, square, tuple(asked))


def _induction(
    given: Given, batch: Batch, ids: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor
) -> Question:
    """For repeated sentences: the token after an earlier copy of the query token. First copies are not asked."""
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
    """The matrices that merge a stack's tokens into words, and the questions about words; none if words are unknown."""
    if stack != given.stacks[0] or not any(given.words):
        return None, []
    place = _placed(given.places, batch, asking.shape[1], NO_WORD)
    merge, targets["words"] = _merging(place, causal(stack))
    rare = _rare(given, batch, place, targets["inner"], asking)
    return merge, [rare, *_syntax(given, batch, targets["words"], offsets)]


def _of_tokens(
    targets: Mapping[str, torch.Tensor],
    asking: torch.Tensor,
    separator: torch.Tensor,
    first: torch.Tensor,
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
    return _uniform(
        SAME, "inner", (ids[:, :, None] == ids[:, None, :]) & other & targets, targets, asking
    )


def _rare(
    given: Given, batch: Batch, place: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor
) -> Question:
    rare = torch.zeros_like(place, dtype=torch.bool)
    for row, sentence in enumerate(batch.rows.tolist()):
        of_word = torch.tensor(
            [*given.rare[sentence], 0], dtype=torch.bool, device=place.device
        )  # the last: for tokens of no word
        rare[row] = of_word[place[row]]
    return _uniform(RARE, "inner", rare[:, None, :] & targets, targets, asking)


def _uniform(
    role: str, among: Among, right: torch.Tensor, targets: torch.Tensor, asking: torch.Tensor
) -> Question:
    """A question whose chance is a uniform pick among the targets; asked where some but not all of them are right."""
    chance = right.sum(dim=2, dtype=torch.float64) / targets.sum(dim=2, dtype=torch.float64).clamp(
        min=1
    )
    return Question(role, among, right, asking & (chance > 0) & (chance < 1), chance)


def _syntax(
    given: Given, batch: Batch, targets: torch.Tensor, offsets: Mapping[str, int]
) -> Iterator[Question]:
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
        yield Question(
            role,
            "words",
            as_tensor,
            as_tensor.any(dim=2),
            torch.as_tensor(chance, device=targets.device),
        )


def _merging(
    place: torch.Tensor, causal: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Matrices that merge tokens into words, and which word may attend to which."""
    words = torch.arange(
        int(place.max()) + 1 if bool((place >= 0).any()) else 1, device=place.device
    )
    sums = (place[:, :, None] == words).float()
    means = sums.transpose(1, 2) / sums.sum(dim=1).clamp(min=1)[:, :, None]
    there = sums.any(dim=1)
    targets = there[:, :, None] & there[:, None, :]
    return (means, sums), targets & (words[None, :] <= words[:, None]) if causal else targets


def _special(
    model: Model, given: Given, batch: Batch, stack: str, ids: torch.Tensor
) -> torch.Tensor:
    """Which tokens of a side are special, bool [row, token]; padding counts as special."""
    if stack == "decoder" and model.module.config.is_encoder_decoder:
        return torch.isin(ids, torch.tensor(sorted(special_ids(model)), device=ids.device))
    return _placed(given.special, batch, ids.shape[1], 1).bool()


def _placed(rows: Sequence[Sequence[int]], batch: Batch, width: int, filler: int) -> torch.Tensor:
    """Values per token of a batch, int [row, token], as wide as its tensors and padded on the same side."""
    real = batch.inputs["attention_mask"].bool().cpu()
    out = torch.full((len(batch.rows), width), filler)
    for row, sentence in enumerate(batch.rows.tolist()):
        out[row, real[row]] = torch.tensor(rows[sentence])
    return out.to(batch.inputs["attention_mask"].device)
