"""Sentences as a model receives them, and questions about their tokens.

A question is where each token should attend.
"""

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
    max_text_tokens,
    omitted_from_texts,
    pad,
)
from headlab.hooks import (
    Model,
    excluded_ids,
    minimal_decoder_inputs,
    query_and_key_tokens,
    token_needs_of,
    tokens_note,
)
from headlab.models import TokenNeeds, lacks_padding_mask, spaced, token_needs, tokenise
from headlab.roles.sentences import Frequencies, Sentences, TargetWords, correct_targets
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
class TokenisedSentences:
    """Sentences, tokenised once.

    Attributes:
        ids: Tokens, [sentence][token].
        stacks: The stacks that are evaluated.
        make_inputs: Given indices of sentences, returns model inputs, padded.
        lengths: Number of tokens, int [sentence].
        words_of_tokens: Index of each token's word, NO_WORD for none, [sentence][token].
        is_special: Whether each token is a special one, 0 or 1, [sentence][token].
        words: The words, [sentence][word]; those of a sentence are empty if they are not known.
        complete_words: Whether all of each word is there, bool [word], by sentence.
        is_rarest: Whether each word is its sentence's least frequent, 0 or 1, [sentence][word].
        targets_of: Given the index of a sentence, returns its `correct_targets`. They are computed
            each time, as they take more memory than the trees.
        notes: What a reader has to know of the sentences.
        repetition_starts: Of repeated sentences, number of tokens before the repetition; else
            empty.
    """

    ids: Rows
    stacks: tuple[str, ...]
    make_inputs: Callable[[Ints], dict[str, torch.Tensor]]
    lengths: Ints
    words_of_tokens: Rows
    is_special: Rows
    words: tuple[tuple[str, ...], ...] = ()
    complete_words: tuple[Bools, ...] = ()
    is_rarest: Rows = field(default_factory=list)
    targets_of: Callable[[int], Mapping[str, TargetWords]] = lambda _: {}
    notes: tuple[str, ...] = ()
    repetition_starts: tuple[int, ...] = ()

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of the given sentences, padded to the longest of them."""
        return self.make_inputs(rows)

    def __len__(self) -> int:
        return len(self.lengths)


def read(model: Model, sentences: Sentences, frequencies: Frequencies | str) -> TokenisedSentences:
    """The sentences as the model receives them.

    Args:
        model: The model whose heads are studied.
        sentences: Trees, or examples of a task.
        frequencies: Frequencies of words, or why there are none.

    Raises:
        HeadlabError: For a model that does not fit.
    """
    tokenise_sentences = _tokenise_trees if sentences.trees else _tokenise_examples
    tokenised = tokenise_sentences(model, sentences, frequencies)
    note = tokens_note(model, needs_of_sentences(model, sentences))
    if note:
        tokenised = replace(tokenised, notes=(*tokenised.notes, f"{note[0].upper()}{note[1:]}."))
    return tokenised


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
    return token_needs_of(model, sentences.examples)


def causal(stack: str) -> bool:
    """Whether the tokens of a stack see only those before them."""
    return stack == "decoder"


def _tokenise_trees(
    model: Model, sentences: Sentences, frequencies: Frequencies | str
) -> TokenisedSentences:
    """Sentences with trees, tokenised word by word."""
    is_encoder_decoder = bool(model.module.config.is_encoder_decoder)
    stacks = tuple(stack.name for stack in model.grid.stacks)
    if is_encoder_decoder:
        stacks = ("encoder",)
    words = [tree.words for tree in sentences.trees]
    tokens, words_of_tokens, cut_words = _tokenise_words(model, words)
    complete_words = _complete_words_of(words, words_of_tokens, cut_words)

    def targets_of(sentence: int) -> Mapping[str, TargetWords]:
        tree = sentences.trees[sentence]
        return correct_targets(tree, complete_words[sentence], causal(stacks[0]))

    def make_inputs(rows: Ints) -> dict[str, torch.Tensor]:
        inputs = pad(model, tokens, rows)
        if is_encoder_decoder:
            inputs |= minimal_decoder_inputs(model, len(rows))
        return inputs

    is_rarest, rare_notes = _rarest_words(words, complete_words, frequencies)
    names = [tree.id for tree in sentences.trees]
    notes = [*_lost_words(names, complete_words, max_text_tokens(model)), *rare_notes]
    if is_encoder_decoder:
        notes.append(
            "Trees are of one language, so of this sequence-to-sequence model the encoder is judged "
            "alone."
        )
    return TokenisedSentences(
        ids=tokens["input_ids"],
        stacks=stacks,
        make_inputs=make_inputs,
        lengths=lengths(words_of_tokens),
        words_of_tokens=words_of_tokens,
        is_special=[[int(word == NO_WORD) for word in row] for row in words_of_tokens],
        words=tuple(words),
        complete_words=complete_words,
        is_rarest=is_rarest,
        targets_of=targets_of,
        notes=tuple(notes),
    )


def _tokenise_examples(
    model: Model, sentences: Sentences, frequencies: Frequencies | str
) -> TokenisedSentences:
    """Examples of a task, tokenised as its evaluator does."""
    examples = sentences.examples
    make_inputs: Callable[[Ints], dict[str, torch.Tensor]]
    omissions: OmissionsByExample | None = None
    if examples[0].target is not None and sentences.task is not None:
        pairs = Pairs(model, sentences.task, examples, sentences.language)
        tokens = pairs.tokens
        make_inputs = pairs.tensors
        token_counts = pairs.lengths
        omissions = pairs.omitted
    elif examples[0].words:
        tokens, _, _ = _tokenise_words(model, [example.words for example in examples])
        make_inputs = _padder(model, tokens)
        token_counts = lengths(tokens["input_ids"])
    else:
        texts = [example.text for example in examples]
        second = None
        if any(example.pair is not None for example in examples):
            second = [example.pair or "" for example in examples]
        tokens = encode(model, texts, second)
        make_inputs = _padder(model, tokens)
        token_counts = lengths(tokens["input_ids"])
        omissions = omitted_from_texts(model, tokens["input_ids"], texts, second)
    ids = tokens["input_ids"]
    words, words_of_tokens, cut_words = _words_of(model, examples, ids, sentences.language)
    complete_words = _complete_words_of(words, words_of_tokens, cut_words)
    is_rarest, rare_notes = _rarest_words(words, complete_words, frequencies)
    names = [example.id for example in examples]
    omission_notes = _lost_words(names, complete_words, max_text_tokens(model))
    if omissions is not None:
        omission_notes = omissions.notes()
    notes = ["No trees were given: syntactic roles are not judged."]
    if any(words):
        notes += rare_notes
    else:
        notes.append(
            "Rare words are not judged: words are not known of pairs of texts, and in languages "
            "without spaces."
        )
    if len({example.cluster for example in examples}) < len(examples):
        notes.append(
            "Intervals treat each example as independent. Some belong to one group, so intervals are "
            "too narrow."
        )
    special = special_ids(model)
    return TokenisedSentences(
        ids=ids,
        stacks=tuple(stack.name for stack in model.grid.stacks),
        make_inputs=make_inputs,
        lengths=token_counts,
        words_of_tokens=words_of_tokens,
        is_special=[[int(token in special) for token in row] for row in ids],
        words=tuple(words),
        complete_words=complete_words,
        is_rarest=is_rarest,
        notes=(*notes, *omission_notes),
    )


def repeated_sentences(model: Model, tokenised: TokenisedSentences) -> TokenisedSentences:
    """Every sentence's tokens repeated once, after the special tokens that it begins with.

    They are cut to the model's limit. Sentences without tokens are left out.

    Args:
        model: A model with one stack.
        tokenised: The sentences.
    """
    repeated_ids: Rows = []
    is_special: Rows = []
    repetition_starts: list[int] = []
    limit = max_text_tokens(model)
    for row, flags in zip(tokenised.ids, tokenised.is_special, strict=True):
        special_before = flags.index(0) if 0 in flags else len(flags)
        text_tokens = [token for token, flag in zip(row, flags, strict=True) if not flag]
        text_tokens = text_tokens[: (limit - special_before) // 2]
        if text_tokens:
            repeated_ids.append([*row[:special_before], *text_tokens, *text_tokens])
            is_special.append([1] * special_before + [0] * (2 * len(text_tokens)))
            repetition_starts.append(special_before + len(text_tokens))
    attention_mask = [[1] * len(row) for row in repeated_ids]
    tokens = {"input_ids": repeated_ids, "attention_mask": attention_mask}
    return TokenisedSentences(
        ids=repeated_ids,
        stacks=tokenised.stacks,
        make_inputs=_padder(model, tokens),
        lengths=lengths(repeated_ids),
        words_of_tokens=[[NO_WORD] * len(row) for row in repeated_ids],
        is_special=is_special,
        repetition_starts=tuple(repetition_starts),
    )


def special_ids(model: Model) -> frozenset[int]:
    """Ids of tokens that represent no text; the unknown token represents some."""
    return frozenset(excluded_ids(model.tokenizer, "special")) - {model.tokenizer.unk_token_id}


def _tokenise_words(
    model: Model, sentences: Sequence[Sequence[str]], *, of_texts: bool = False
) -> tuple[dict[str, Rows], Rows, list[int]]:
    """Tokens of sentences given as words.

    Args:
        model: The model that is given the sentences.
        sentences: Words of each sentence.
        of_texts: Whether the words are those of a text, of which the first has no space before it.

    Returns:
        The tokens by name, the word of each token, and the word at which each sentence was cut.
    """
    spaces = model.word_spaces
    if of_texts and spaces == "every":
        spaces = "inner"
    encoded_words = encode_words(model, sentences, spaces=spaces)
    words_of_tokens = []
    for row in encoded_words.word_ids:
        words_of_tokens.append([NO_WORD if word is None else int(word) for word in row])
    spaced_sentences = [spaced(words, spaces) for words in sentences]
    cut_words = _cut_words(model, spaced_sentences, words_of_tokens)
    return encoded_words.columns, words_of_tokens, cut_words


def _cut_words(model: Model, words: Sequence[Sequence[str]], words_of_tokens: Rows) -> list[int]:
    """The word at which each sentence was cut; -1 for those that were not."""
    cut_words = [NO_WORD] * len(words_of_tokens)
    # A sentence with the maximum number of tokens was cut, or fits exactly.
    limit = max_text_tokens(model)
    full_rows = [
        row for row, token_words in enumerate(words_of_tokens) if len(token_words) >= limit
    ]
    if full_rows:
        full_sentences = [list(words[row]) for row in full_rows]
        uncut = tokenise(model.tokenizer, full_sentences, split=True).columns
        outermost = min if model.tokenizer.truncation_side == "left" else max
        for row, ids in zip(full_rows, uncut["input_ids"], strict=True):
            if len(ids) > len(words_of_tokens[row]):
                words_left = [word for word in words_of_tokens[row] if word != NO_WORD]
                cut_words[row] = outermost(words_left, default=NO_WORD)
    return cut_words


def _words_of(
    model: Model, examples: Sequence[Example], ids: Rows, language: str
) -> tuple[list[tuple[str, ...]], Rows, list[int]]:
    """Words of texts, where they give the same tokens as the text.

    Args:
        model: The model that is given the texts.
        examples: The texts.
        ids: Their tokens, [example][token].
        language: Of the texts.

    Returns:
        The words, the word of each token, and the word at which each text was cut. There are none
        of a text whose words are not known.
    """
    has_spaces = language.split("-")[0] not in UNSPACED
    words = [_words_of_example(example, has_spaces) for example in examples]
    words_of_tokens = [[NO_WORD] * len(row) for row in ids]
    cut_words = [NO_WORD] * len(examples)
    if not any(words):
        return words, words_of_tokens, cut_words
    of_texts = not any(example.words for example in examples)
    sentences = [words_of_example or ("",) for words_of_example in words]
    tokens, words_of_split, cut_words_of_split = _tokenise_words(
        model, sentences, of_texts=of_texts
    )
    for row, split_ids in enumerate(tokens["input_ids"]):
        if split_ids == ids[row] and words[row]:
            words_of_tokens[row] = words_of_split[row]
            cut_words[row] = cut_words_of_split[row]
        else:
            words[row] = ()
    return words, words_of_tokens, cut_words


def _words_of_example(example: Example, has_spaces: bool) -> tuple[str, ...]:
    """The words of an example, or of its text.

    None of pairs of texts, and of texts without spaces.
    """
    if example.words:
        return example.words
    if has_spaces and example.pair is None:
        return tuple(example.text.split())
    return ()


def _complete_words_of(
    sentences: Sequence[Sequence[str]], words_of_tokens: Rows, cut_words: Sequence[int]
) -> tuple[Bools, ...]:
    """Which words of each sentence are complete, bool [word].

    A word without a token is not, nor is the word at which the sentence was cut.

    Args:
        sentences: Words of each sentence, [sentence][word].
        words_of_tokens: The word of each token, [sentence][token].
        cut_words: The word at which each sentence was cut, [sentence]; NO_WORD for one that was
            not.
    """
    complete_words_of_sentences = []
    for sentence_index, words_of_sentence in enumerate(sentences):
        is_complete = np.zeros(len(words_of_sentence), dtype=bool)
        is_complete[sorted(set(words_of_tokens[sentence_index]) - {NO_WORD})] = True
        if cut_words[sentence_index] != NO_WORD:
            is_complete[cut_words[sentence_index]] = False
        complete_words_of_sentences.append(is_complete)
    return tuple(complete_words_of_sentences)


def _lost_words(
    names: Sequence[str], complete_words: Sequence[Bools], limit: int
) -> tuple[str, ...]:
    """A note on words that are not there as a whole, about which nothing is asked; none if all are.

    Args:
        names: Of the sentences.
        complete_words: Of every sentence, which words are complete, bool [word].
        limit: Maximum number of tokens of a sentence.
    """
    counts = [int((~is_complete).sum()) for is_complete in complete_words]
    if not any(counts):
        return ()
    sentences = [name for name, count in zip(names, counts, strict=True) if count]
    return (
        f"{len(sentences)} of {len(complete_words)} sentences were cut to the model's {limit} tokens "
        f"or hold words without a token: {sum(counts)} words are lost, and nothing is asked about "
        f"them ({', '.join(sentences):.200}).",
    )


def _rarest_words(
    words: Sequence[tuple[str, ...]],
    complete_words: Sequence[Bools],
    frequencies: Frequencies | str,
) -> tuple[Rows, tuple[str, ...]]:
    """Whether each word is the least frequent of those that are there; and notes."""
    is_rarest: Rows = [[0] * len(sentence) for sentence in words]
    if isinstance(frequencies, str):
        return is_rarest, (f"Rare words are not judged: {frequencies}.",)
    for row, is_complete in enumerate(complete_words):
        indices = np.flatnonzero(is_complete).tolist()
        are_rarest = frequencies.rarest([words[row][index] for index in indices])
        for index, word_is_rarest in zip(indices, are_rarest, strict=True):
            is_rarest[row][index] = int(word_is_rarest)
    return is_rarest, ()


def _padder(model: Model, tokens: dict[str, Rows]) -> Callable[[Ints], dict[str, torch.Tensor]]:
    return lambda rows: pad(model, tokens, rows)


# Questions about the tokens and words of a batch: where each should attend, and how often chance is
# right.

# Keys among which the largest weight is sought: all real tokens, those that are not special, these
# without the first of the sentence (where idle attention goes), or words.
KeyKind = Literal["all", "inner", "aimed", "words"]


@dataclass(frozen=True)
class Question:
    """One role, asked of a batch.

    Queries and keys are words if the kind of keys is "words", else tokens.

    Attributes:
        role: Name of the role.
        key_kind: The keys among which the largest weight is sought.
        is_correct: Whether a query should attend to a key, bool [row, query, key].
        is_asked: Whether a query is asked about, bool [row, query].
        chance: Share of the targets that are correct, or 0 or 1 for a fixed offset, float64
            [row, query].
    """

    role: str
    key_kind: KeyKind
    is_correct: torch.Tensor
    is_asked: torch.Tensor
    chance: torch.Tensor


@dataclass(frozen=True)
class StackView:
    """One stack's view of a batch: the queries, and the keys that they can attend to.

    Attributes:
        is_query: Real tokens that attend, bool [row, query].
        targets: The keys that each query can attend to, by kind of keys, bool [row, query, key].
        merge: Matrices that turn token weights into word weights, [row, word, query] (the mean over
            a word's tokens) and [row, key, word] (the sum); None if no words are known.
        is_separator: Bool [row, key].
        is_first: Whether a key is the first of its sentence, bool [row, key].
        counts_as_target: Targets of confidence, bool [row, key].
        within_stack: Whether queries and keys are the same tokens.
        questions: About the queries.
    """

    is_query: torch.Tensor
    targets: Mapping[str, torch.Tensor]
    merge: tuple[torch.Tensor, torch.Tensor] | None
    is_separator: torch.Tensor
    is_first: torch.Tensor
    counts_as_target: torch.Tensor
    within_stack: bool
    questions: tuple[Question, ...]


def stack_view(
    model: Model,
    tokenised: TokenisedSentences,
    batch: Batch,
    stack: str,
    exclude: str,
    offsets: Mapping[str, int],
) -> StackView:
    """A batch as one stack sees it, with all its questions.

    Args:
        model: The model whose heads are studied.
        tokenised: The sentences.
        batch: Some of them.
        stack: Name of the stack.
        exclude: Tokens that do not count as targets of confidence (see `excluded_ids`).
        offsets: The fixed offset that each syntactic role is compared with.
    """
    (ids, is_query), (keys, is_key) = query_and_key_tokens(batch.inputs, stack)
    within_stack = stack != "cross"
    is_visible = (is_query[:, :, None] & is_key[:, None, :]).clone()
    if causal(stack):
        all_pairs = torch.ones(is_visible.shape[1:], dtype=torch.bool, device=is_visible.device)
        is_visible &= all_pairs.tril()
    is_first = is_key & (is_key.long().cumsum(dim=1) == 1)
    is_separator = torch.isin(keys, _excluded_tokens(model, "separator", ids)) & is_key
    counts_as_target = is_key & ~torch.isin(keys, _excluded_tokens(model, exclude, ids))
    is_special_key = _special_tokens(model, tokenised, batch, stack, keys)
    is_special_query = is_special_key
    if not within_stack:
        is_special_query = _special_tokens(model, tokenised, batch, "decoder", ids)
    targets = {"all": is_visible, "inner": is_visible & ~is_special_key[:, None, :]}
    targets["aimed"] = targets["inner"] & ~is_first[:, None, :]
    may_be_asked = is_query & ~is_special_query
    merge = None
    if tokenised.repetition_starts:
        questions = [_induction_question(tokenised, batch, ids, targets["aimed"], may_be_asked)]
    else:
        questions = [*_token_questions(targets, may_be_asked, is_separator, is_first)]
        if within_stack:
            questions += _position_questions(is_visible, may_be_asked)
            questions.append(_same_token_question(ids, targets["inner"], may_be_asked))
        merge, word_questions = _word_questions(
            tokenised, batch, stack, targets, may_be_asked, offsets
        )
        questions += word_questions
    return StackView(
        is_query=is_query,
        targets=targets,
        merge=merge,
        is_separator=is_separator,
        is_first=is_first,
        counts_as_target=counts_as_target,
        within_stack=within_stack,
        questions=tuple(questions),
    )


def _excluded_tokens(model: Model, exclude: str, ids: torch.Tensor) -> torch.Tensor:
    """The tokens that a word for them excludes, on the device of some ids."""
    return torch.tensor(excluded_ids(model.tokenizer, exclude), device=ids.device)


def _induction_question(
    tokenised: TokenisedSentences,
    batch: Batch,
    ids: torch.Tensor,
    targets: torch.Tensor,
    may_be_asked: torch.Tensor,
) -> Question:
    """Whether repeated sentences attend to the token after an earlier copy of the query token.

    First copies are not asked.
    """
    columns = torch.arange(ids.shape[1], device=ids.device)
    is_same = ids[:, :, None] == ids[:, None, :]
    is_correct = torch.zeros_like(is_same)
    is_correct[:, :, 1:] = is_same[:, :, :-1]
    is_correct &= targets & (columns[None, :] < columns[:, None])
    starts = [tokenised.repetition_starts[row] for row in batch.rows.tolist()]
    repetition_start = torch.tensor(starts, device=ids.device)
    token_number = batch.inputs["attention_mask"].cumsum(dim=1) - 1
    is_repeated = token_number >= repetition_start[:, None]
    return _question_with_uniform_chance(
        INDUCTION, "aimed", is_correct, targets, may_be_asked & is_repeated
    )


def _word_questions(
    tokenised: TokenisedSentences,
    batch: Batch,
    stack: str,
    targets: dict[str, torch.Tensor],
    may_be_asked: torch.Tensor,
    offsets: Mapping[str, int],
) -> tuple[tuple[torch.Tensor, torch.Tensor] | None, list[Question]]:
    """The matrices that merge a stack's tokens into words, and the questions about words.

    There are none if words are not known. The words that each word can attend to are added to the
    targets.
    """
    if stack != tokenised.stacks[0] or not any(tokenised.words):
        return None, []
    word_of_token = _values_of_tokens(
        tokenised.words_of_tokens, batch, may_be_asked.shape[1], NO_WORD
    )
    merge, targets["words"] = _merging_matrices(word_of_token, causal(stack))
    rare = _rare_word_question(tokenised, batch, word_of_token, targets["inner"], may_be_asked)
    return merge, [rare, *_syntax_questions(tokenised, batch, targets["words"], offsets)]


def _token_questions(
    targets: Mapping[str, torch.Tensor],
    may_be_asked: torch.Tensor,
    is_separator: torch.Tensor,
    is_first: torch.Tensor,
) -> Iterator[Question]:
    visible = targets["all"]
    for role, is_correct in ((SEPARATOR, is_separator), (FIRST, is_first)):
        yield _question_with_uniform_chance(
            role, "all", is_correct[:, None, :] & visible, visible, may_be_asked
        )


def _position_questions(visible: torch.Tensor, may_be_asked: torch.Tensor) -> Iterator[Question]:
    columns = torch.arange(visible.shape[1], device=visible.device)
    offsets = columns[None, :] - columns[:, None]
    for offset in OFFSETS:
        yield _question_with_uniform_chance(
            position(offset), "all", (offsets == offset) & visible, visible, may_be_asked
        )


def _same_token_question(
    ids: torch.Tensor, targets: torch.Tensor, may_be_asked: torch.Tensor
) -> Question:
    is_other = ~torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
    is_same = ids[:, :, None] == ids[:, None, :]
    return _question_with_uniform_chance(
        SAME, "inner", is_same & is_other & targets, targets, may_be_asked
    )


def _rare_word_question(
    tokenised: TokenisedSentences,
    batch: Batch,
    word_of_token: torch.Tensor,
    targets: torch.Tensor,
    may_be_asked: torch.Tensor,
) -> Question:
    is_rare = torch.zeros_like(word_of_token, dtype=torch.bool)
    for row, sentence in enumerate(batch.rows.tolist()):
        is_rarest = [*tokenised.is_rarest[sentence], 0]  # the last one is for tokens of no word
        is_rare_word = torch.tensor(is_rarest, dtype=torch.bool, device=word_of_token.device)
        is_rare[row] = is_rare_word[word_of_token[row]]
    return _question_with_uniform_chance(
        RARE, "inner", is_rare[:, None, :] & targets, targets, may_be_asked
    )


def _question_with_uniform_chance(
    role: str,
    key_kind: KeyKind,
    is_correct: torch.Tensor,
    candidates: torch.Tensor,
    may_be_asked: torch.Tensor,
) -> Question:
    """A question whose chance is that of a uniform pick among the keys that a query can attend to.

    It is asked where some of these keys are correct, but not all.
    """
    correct_count = is_correct.sum(dim=2, dtype=torch.float64)
    target_count = candidates.sum(dim=2, dtype=torch.float64)
    chance = correct_count / target_count.clamp(min=1)
    is_asked = may_be_asked & (chance > 0) & (chance < 1)
    return Question(role, key_kind, is_correct, is_asked, chance)


def _syntax_questions(
    tokenised: TokenisedSentences, batch: Batch, targets: torch.Tensor, offsets: Mapping[str, int]
) -> Iterator[Question]:
    size = (len(batch.rows), targets.shape[1])
    targets_of_sentences = [tokenised.targets_of(sentence) for sentence in batch.rows.tolist()]
    for role in SYNTACTIC:
        is_correct = np.zeros((*size, size[1]), dtype=bool)
        chance = np.zeros(size)
        for row, targets_by_role in enumerate(targets_of_sentences):
            for word, correct_words in targets_by_role.get(role, {}).items():
                is_correct[row, word, list(correct_words)] = True
                chance[row, word] = word + offsets[role] in correct_words
        correct_tensor = torch.as_tensor(is_correct, device=targets.device)
        yield Question(
            role=role,
            key_kind="words",
            is_correct=correct_tensor,
            is_asked=correct_tensor.any(dim=2),
            chance=torch.as_tensor(chance, device=targets.device),
        )


def _merging_matrices(
    word_of_token: torch.Tensor, causal: bool
) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Matrices that merge tokens into words, and which word may attend to which."""
    word_count = int(word_of_token.max()) + 1 if bool((word_of_token >= 0).any()) else 1
    words = torch.arange(word_count, device=word_of_token.device)
    sums = (word_of_token[:, :, None] == words).float()
    means = sums.transpose(1, 2) / sums.sum(dim=1).clamp(min=1)[:, :, None]
    is_there = sums.any(dim=1)
    targets = is_there[:, :, None] & is_there[:, None, :]
    if causal:
        targets = targets & (words[None, :] <= words[:, None])
    return (means, sums), targets


def _special_tokens(
    model: Model, tokenised: TokenisedSentences, batch: Batch, stack: str, ids: torch.Tensor
) -> torch.Tensor:
    """Which tokens of a side are special, bool [row, token]; padding counts as special."""
    if stack == "decoder" and model.module.config.is_encoder_decoder:
        return torch.isin(ids, torch.tensor(sorted(special_ids(model)), device=ids.device))
    return _values_of_tokens(tokenised.is_special, batch, ids.shape[1], 1).bool()


def _values_of_tokens(
    rows: Sequence[Sequence[int]], batch: Batch, width: int, filler: int
) -> torch.Tensor:
    """Values of a batch's tokens, int [row, token], padded on the same side as its tensors.

    Args:
        rows: Values of all sentences, [sentence][token].
        batch: Some of the sentences.
        width: Of the batch's tensors.
        filler: Stands where there is no token.
    """
    is_real = batch.inputs["attention_mask"].bool().cpu()
    values = torch.full((len(batch.rows), width), filler)
    for row, sentence in enumerate(batch.rows.tolist()):
        values[row, is_real[row]] = torch.tensor(rows[sentence])
    return values.to(batch.inputs["attention_mask"].device)
