"""Examples as model inputs: texts to classify, words to label, sources with their targets."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Protocol, cast

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from headlab.core import HeadlabError, Ints, JsonObject
from headlab.core.devices import on_device
from headlab.evaluation.context import (
    OmissionsByExample,
    default_context,
    max_text_tokens,
    nothing_omitted,
)
from headlab.evaluation.encoding import (
    MASKED_SHARE,
    NO_TARGET,
    ChoiceAnswers,
    Choices,
    DeviceRows,
    NextTokens,
    Rows,
    Sized,
    TokenRows,
    answered_words,
    check_lengths,
    check_tokens,
    decoder_filler,
    decoder_inputs_of,
    encode,
    encode_words,
    labels_of_tokens,
    lengths,
    log_probabilities,
    masks_tokens,
    omitted_from_texts,
    omitted_from_words,
    pad,
    pad_rows,
    require_kind,
    require_padding,
)
from headlab.hooks import (
    ActiveGates,
    Model,
    decoder_start_token,
    not_finite_error,
    teach_positions,
    token_needs_of,
    tokens_note,
)
from headlab.models import PADDING_MASK, tokenise, tokenizer_lock, tokenizer_output
from headlab.models.special_ids import is_known_token
from headlab.tasks import (
    CHANCE_LEVEL,
    MAX_LABELS_TO_ORDER,
    Example,
    LabelOrder,
    Task,
    are_nameless,
    columns_by_map,
    columns_by_name,
    first_names_of,
    languages_of_pair,
    map_hint,
    try_orders,
)

# What a translation model needs besides a text: a prefix, or the languages by its tokenizer's own
# codes.

# T5's names of the tasks that it was trained on.
TRANSLATION_TASK = re.compile(r"translation_(\w+?)_to_(\w+)")
LANGUAGE_CODE = re.compile(r"[a-z]{2,3}_[A-Za-z0-9]+")  # de_DE, deu_Latn


@dataclass(frozen=True)
class LanguageSetup:
    """What precedes every source and every translation; nothing for a model of one language pair.

    Attributes:
        prefix: Text before a source.
        source: The tokenizer's code of the source language.
        target: The tokenizer's code of the target language.
        first_token: First token of a translation, which is given, not predicted.
        start_token: First token of the decoder, where the model's config names none.
    """

    prefix: str = ""
    source: str = ""
    target: str = ""
    first_token: int | None = None
    start_token: int | None = None

    @contextmanager
    def set_up(self, tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
        """The tokenizer with the two codes set, until the block ends; other threads wait for it."""
        with tokenizer_lock(tokenizer):
            if not self.source:
                yield
                return
            previous_source = tokenizer.src_lang
            previous_target = tokenizer.tgt_lang
            try:
                tokenizer.src_lang = self.source
                tokenizer.tgt_lang = self.target
                yield
            finally:
                tokenizer.src_lang = previous_source
                tokenizer.tgt_lang = previous_target

    def settings(self) -> dict[str, int]:
        """The same settings as keyword arguments of transformers' `generate`."""
        token_ids = {
            "forced_bos_token_id": self.first_token,
            "decoder_start_token_id": self.start_token,
        }
        return {name: token for name, token in token_ids.items() if token is not None}


def language_setup(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, language: str
) -> LanguageSetup:
    """Prefix or language codes of a model for a pair like en-de.

    A T5 uses the prefix in its `task_specific_params`, a Marian model of many targets a mark
    (>>de<<), mBART, M2M and NLLB their codes.

    Args:
        config: Of the model.
        tokenizer: Of the model.
        language: The pair; a language that is not a pair is on both sides.

    Raises:
        HeadlabError: The model needs a prefix or code that it does not have.
    """
    source, target = languages_of_pair(language)
    if source != target:
        prefixes = _prefixes(config)
        if prefixes:
            return LanguageSetup(prefix=_prefix(prefixes, source, target))
        marks = getattr(tokenizer, "supported_language_codes", None)
        if marks:
            code = _matching_code(target, [mark.strip("><") for mark in marks])
            return LanguageSetup(prefix=f">>{code}<< ")
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        return _setup_by_codes(config, tokenizer, source, target)
    return LanguageSetup()


def decoder_start(model: Model, setup: LanguageSetup) -> int:
    """The first token of a decoder's inputs.

    Args:
        model: An encoder-decoder.
        setup: Of its languages, which may say the token.

    Raises:
        HeadlabError: Neither they nor the model's configuration say one that the model has.
    """
    start = decoder_start_token(model) if setup.start_token is None else setup.start_token
    # The decoder may have more tokens than the encoder.
    if not is_known_token(start, model.module.config):
        check_tokens(model, [[start]])
    return start


def _prefixes(config: PretrainedConfig) -> dict[tuple[str, str], str]:
    """{(source, target): prefix} of the translations named in a model's config."""
    prefixes = {}
    params_by_task = getattr(config, "task_specific_params", None) or {}
    for task_name, params in params_by_task.items():
        match = TRANSLATION_TASK.fullmatch(task_name)
        if match is not None:
            prefixes[match[1], match[2]] = str((params or {}).get("prefix", ""))
    return prefixes


def _prefix(prefixes: dict[tuple[str, str], str], source: str, target: str) -> str:
    """The prefix of a pair of languages, from those of all pairs that a model's config names."""
    source_code = _primary_code(source)
    target_code = _primary_code(target)
    matching_prefixes = []
    for (source_name, target_name), prefix in prefixes.items():
        codes = (_primary_code(source_name), _primary_code(target_name))
        if codes == (source_code, target_code):
            matching_prefixes.append(prefix)
    if len(matching_prefixes) != 1:
        pairs = ", ".join("-".join(pair) for pair in prefixes)
        raise HeadlabError(
            f"the model's task_specific_params names translations of {pairs}, and it is to translate "
            f"{source}-{target}; put translation_{source_code}_to_{target_code} with its prefix (it "
            "may be empty) into its config.json",
            code="translation.prefix_missing",
        )
    return matching_prefixes[0]


def _setup_by_codes(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, source: str, target: str
) -> LanguageSetup:
    """The setup of a tokenizer that is told its languages.

    It has the token that starts a translation.
    """
    codes = list(
        getattr(tokenizer, "lang_code_to_token", None)
        or filter(LANGUAGE_CODE.fullmatch, tokenizer.all_special_tokens)
    )
    if not codes:
        raise HeadlabError(
            f"{type(tokenizer).__name__} must be told its languages, and headlab cannot determine how; "
            "use a model of one language pair",
            code="translation.codes_missing",
        )
    setup = LanguageSetup(
        source=_matching_code(source, codes), target=_matching_code(target, codes)
    )
    token_of_code = cast(
        Callable[[str], int], getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)
    )
    target_token = int(token_of_code(setup.target))
    with setup.set_up(tokenizer):
        ids = tokenizer_output(tokenizer, text_target="a")["input_ids"]
    if ids[0] == target_token:
        return replace(setup, first_token=target_token)
    # An mBART's decoder starts with the last token of its targets.
    if ids[-1] == target_token and config.model_type == "mbart":
        return replace(setup, start_token=target_token)
    raise HeadlabError(
        f"{type(tokenizer).__name__} does not put the code {setup.target} before a translation (legacy_behaviour?); "
        "save it again with the code in front",
        code="translation.code_not_in_front",
    )


def _matching_code(language: str, codes: Iterable[str]) -> str:
    """The code of a language: an identical one, or the only one that begins with it."""
    codes = list(codes)
    identical_codes = [code for code in codes if _normal_code(code) == _normal_code(language)]
    matching_codes = identical_codes or [
        code for code in codes if _primary_code(code) == _primary_code(language)
    ]
    if len(matching_codes) != 1:
        shown_codes = ", ".join((matching_codes or codes)[:6])
        raise HeadlabError(
            f"the model's tokenizer has {'several codes' if matching_codes else 'no code'} for "
            f"{language!r} ({shown_codes}…); name the pair, and its files, by the tokenizer's own "
            "codes, like eng_Latn-deu_Latn",
            code="translation.code_ambiguous" if matching_codes else "translation.code_unknown",
        )
    return matching_codes[0]


def _normal_code(code: str) -> str:
    return code.lower().replace("_", "-")


def _primary_code(code: str) -> str:
    return _normal_code(code).partition("-")[0]


# Examples as inputs.


class Inputs(Sized, Protocol):
    """Examples of one language, tokenised once.

    Attributes:
        note: What to know beside figures of these examples; mostly empty.
        omitted: What of them was cut, or has no answer.
        lengths: Number of tokens, which determine a batch's padding, int [example].
        units: Number of answers of each example, int [example]: one for a text, one per labelled
            word, one per token of a target.
        answers: The right answers, example by example, int [answer].
    """

    note: str
    omitted: OmissionsByExample
    lengths: Ints
    units: Ints
    answers: Ints

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some examples, padded to the longest of them."""

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Right answers: int [row], or [row, token] with NO_TARGET where there is no answer.

        Args:
            rows: Indices of examples, int [row].
            width: Least number of tokens; rows of a larger batch keep its padding.
        """

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The model's scores, [row, label] or [row, token, label], labels in the task's order."""


def read_inputs(model: Model, task: Task, examples: Sequence[Example], language: str) -> Inputs:
    """The examples of a language as model inputs.

    Raises:
        HeadlabError: The model does not suit the task.
    """
    if examples[0].choices:
        if model.module.config.is_encoder_decoder and model.module.can_generate():
            return TargetChoices(model, task, examples, language)
        return Choices(model, task, examples)
    if task.likelihood:
        return NextTokens(model, task, examples)
    if examples[0].target is not None:
        return Pairs(model, task, examples, language)
    return _labelled_inputs(model, task, examples)


def _labelled_inputs(
    model: Model, task: Task, examples: Sequence[Example], columns: Sequence[int] | None = None
) -> Texts | WordInputs:
    if examples[0].words:
        return WordInputs(model, task, examples, columns)
    return Texts(model, task, examples, columns)


class ClassifierInputs:
    """What texts and words with labels share.

    Args:
        model: The model that is given them.
        task: Their task.
        columns: Columns of the model's scores; None for those of the task's labels.
        ending: What the name of the model's class must end with.
        kind: The kind of model that this is, for the error.
    """

    note = ""
    _tokens: dict[str, Rows]

    def __init__(
        self, model: Model, task: Task, columns: Sequence[int] | None, ending: str, kind: str
    ) -> None:
        require_kind(model, task, ending, kind)
        self.model = model
        self._columns = list(columns or label_order(model, task).columns)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """See `Inputs.tensors`."""
        return self._token_rows.batch(rows)

    @cached_property
    def _token_rows(self) -> TokenRows:
        return TokenRows(self.model, self._tokens)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the task's labels, [row, label] or [row, token, label]."""
        scores: torch.Tensor = self.model.module(**inputs).logits
        return scores.index_select(-1, self._column_numbers)

    @cached_property
    def _column_numbers(self) -> torch.Tensor:
        with torch.inference_mode(False):  # gradients need it, whoever asks first
            return on_device(np.array(self._columns), self.model.device)


class Texts(ClassifierInputs):
    """Texts or pairs of texts with one label each, for a sequence classifier."""

    def __init__(
        self,
        model: Model,
        task: Task,
        examples: Sequence[Example],
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model, task, columns, "ForSequenceClassification", "sequence classifier")
        self.note = tokens_note(model, token_needs_of(model, examples))
        pairs = [example.pair for example in examples]
        second = None
        if any(pair is not None for pair in pairs):
            second = [pair or "" for pair in pairs]
        texts = [example.text for example in examples]
        self._tokens = encode(model, texts, second)
        check_ends(model, self._tokens["input_ids"])
        self.omitted = omitted_from_texts(model, self._tokens["input_ids"], texts, second)
        self.answers = np.array([example.label for example in examples], dtype=np.int64)
        self.lengths = lengths(self._tokens["input_ids"])
        self.units = np.ones_like(self.lengths)

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Labels, int [row]."""
        return on_device(self.answers[rows], self.model.device)


class WordInputs(ClassifierInputs):
    """Sentences with one label per word, for a token classifier.

    A word is scored at its first token.

    Attributes:
        words: Which word of the example each answer is of, [example][answer].
    """

    def __init__(
        self,
        model: Model,
        task: Task,
        examples: Sequence[Example],
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model, task, columns, "ForTokenClassification", "token classifier")
        self.note = tokens_note(model, token_needs_of(model, examples))
        sentences = [list(example.words) for example in examples]
        labels = [example.labels for example in examples]
        encoded_words = encode_words(model, sentences)
        self._tokens = encoded_words.columns
        token_labels = []
        self.words: Rows = []
        for words_of_tokens, word_labels in zip(encoded_words.word_ids, labels, strict=True):
            token_labels.append(labels_of_tokens(words_of_tokens, word_labels))
            self.words.append(answered_words(words_of_tokens, word_labels))
        self._label_rows = DeviceRows(token_labels, model.device)
        token_rows = self._tokens["input_ids"]
        self.omitted = omitted_from_words(model, token_rows, sentences, labels, self.words)
        self.lengths = lengths(token_rows)
        labels_of_answers = [[label for label in row if label != NO_TARGET] for row in token_labels]
        self.units = lengths(labels_of_answers)
        if not self.units.any():
            raise HeadlabError(
                f"{task.name}: none of the labelled words of {len(examples):,} "
                f"{'sentence' if len(examples) == 1 else 'sentences'} has an answer of {model.name}, "
                f"{self.omitted.of_first(len(examples)).sentence}; give sentences with words that its tokenizer knows",
                code="data.words_unanswered",
            )
        self.answers = np.concatenate(labels_of_answers).astype(np.int64)

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Labels at the words' first tokens, int [row, token]."""
        return self._label_rows.padded_batch(rows, NO_TARGET, width)


class Pairs:
    """Sources with their targets, for a sequence-to-sequence model with teacher forcing.

    Attributes:
        tokens: Of the sources, with the prefix or codes of the language pair, by name.
        lengths_by_side: Tokens of the sources and of the targets, each int [example].
    """

    note = ""

    def __init__(
        self, model: Model, task: Task, examples: Sequence[Example], language: str
    ) -> None:
        if not model.module.config.is_encoder_decoder:
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}; task {task.name} has targets to be generated "
                "and needs an encoder-decoder model",
                code="model.not_encoder_decoder",
            )
        self.model = model
        self._setup = language_setup(model.module.config, model.tokenizer, language)
        self.tokens = encode_sources(model, [example.text for example in examples], self._setup)
        texts = [example.target or "" for example in examples]
        limit = max_text_tokens(model, targets=True)
        with self._setup.set_up(model.tokenizer):
            targets = tokenise(model.tokenizer, texts, target=True, max_tokens=limit).columns
        self.omitted = self._omitted(examples, targets["input_ids"], limit)
        # Number of first tokens of a target that are not answers.
        self._given_count = int(self._setup.first_token is not None)
        # The tokenizer puts the token that the decoder starts with behind a target.
        target_tokens = slice(None) if self._setup.start_token is None else slice(-1)
        self._targets: Rows = [row[target_tokens] for row in targets["input_ids"]]
        check_tokens(model, self._targets)
        sources_and_targets = lengths(self.tokens["input_ids"]), lengths(self._targets)
        self.lengths_by_side = sources_and_targets
        self.lengths = np.sum(sources_and_targets, axis=0)
        self.units = lengths(self._targets) - self._given_count
        answers = [row[self._given_count :] for row in self._targets]
        self.answers = np.concatenate(answers).astype(np.int64)

    def _omitted(
        self, examples: Sequence[Example], targets: Rows, limit: int
    ) -> OmissionsByExample:
        """Which examples were cut, in their source or in their target.

        Args:
            examples: The examples, in the order of `targets`.
            targets: Tokens of their targets, as the tokenizer cut them, [example][token].
            limit: Maximum number of tokens of a target.
        """
        tokenizer = self.model.tokenizer
        sources = [self._setup.prefix + example.text for example in examples]
        full_rows = [row for row, ids in enumerate(targets) if len(ids) >= limit]
        with self._setup.set_up(tokenizer):
            omissions = omitted_from_texts(self.model, self.tokens["input_ids"], sources)
            for row in full_rows:
                uncut = tokenise(tokenizer, [examples[row].target or ""], target=True)
                (uncut_tokens,) = uncut.columns["input_ids"]
                omissions.is_cut[row] |= len(uncut_tokens) > len(targets[row])
        return omissions

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Sources, and targets shifted right by one position."""
        targets = self._target_tensor(rows)
        start = decoder_start(self.model, self._setup)
        decoder_inputs = {
            "decoder_input_ids": decoder_inputs_of(targets, start, decoder_filler(self.model)),
            # Padding changes no answer, but would enter the heads' means.
            "decoder_attention_mask": (targets != NO_TARGET).long(),
        }
        return pad(self.model, self.tokens, rows) | decoder_inputs

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Tokens of the targets, int [row, token]."""
        targets = self._target_tensor(rows, width)
        targets[:, : self._given_count] = NO_TARGET
        return targets

    def _target_tensor(self, rows: Ints, width: int = 0) -> torch.Tensor:
        targets = pad_rows([self._targets[row] for row in rows], NO_TARGET, width)
        return on_device(targets, self.model.device)

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the next token, [row, token, vocabulary]."""
        logits: torch.Tensor = self.model.module(**inputs, use_cache=False).logits
        return logits


class TargetChoices(ChoiceAnswers):
    """Contexts with several continuations each, for a sequence-to-sequence model.

    They may be sources with several translations. The encoder reads a context once; the decoder
    gets one continuation after the other, without an end token, as in lm-evaluation-harness.
    """

    note = ""

    def __init__(
        self, model: Model, task: Task, examples: Sequence[Example], language: str
    ) -> None:
        super().__init__(examples)
        require_padding(model)
        tokenizer = model.tokenizer
        self.model = model
        self._setup = language_setup(model.module.config, tokenizer, language)
        example_names = [example.reference for example in examples]
        # First tokens of every continuation, which are not scored.
        given_tokens = [] if self._setup.first_token is None else [self._setup.first_token]
        self._given_count = len(given_tokens)
        self._targets: list[Rows] = []
        with self._setup.set_up(tokenizer):
            sources = [self._setup.prefix + example.text for example in examples]
            contexts = tokenizer_output(tokenizer, sources)
            for example in examples:
                choices = tokenizer_output(
                    tokenizer, text_target=list(example.choices), add_special_tokens=False
                )
                targets = [[*given_tokens, *tokens] for tokens in choices["input_ids"]]
                self._targets.append(targets)
        self._tokens: dict[str, Rows] = {name: list(contexts[name]) for name in contexts}
        context_rows = self._tokens["input_ids"]
        self._tokens.setdefault(PADDING_MASK, [[1] * len(row) for row in context_rows])
        check_lengths(model, task.name, example_names, context_rows)
        self.omitted = nothing_omitted(model, len(examples))
        self.note = default_context(model)
        for name, context, rows in zip(example_names, context_rows, self._targets, strict=True):
            if not context:
                raise HeadlabError(
                    f"{task.name}, example {name}: the tokenizer of {model.name} gives its context no token; give it a "
                    "context",
                    code="data.context_empty",
                )
            check_lengths(model, task.name, [name] * len(rows), rows, targets=True)
            if any(len(row) <= self._given_count for row in rows):
                raise HeadlabError(
                    f"{task.name}, example {name}: the tokenizer of {model.name} gives one of its choices no token; "
                    "give a longer choice",
                    code="data.choice_empty",
                )
        check_tokens(model, [*context_rows, *chain.from_iterable(self._targets)])
        longest_targets = [max(len(row) for row in rows) for rows in self._targets]
        self.lengths: Ints = lengths(context_rows) + np.array(longest_targets)
        teach_positions(model.module)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Contexts, and the right continuations as the decoder's inputs.

        The tokens of all continuations are there, too, [row, choice, token].
        """
        targets_of_rows = [self._targets[row] for row in rows]
        width = max(len(tokens) for tokens in chain.from_iterable(targets_of_rows))
        targets = torch.full((len(rows), self.bytes.shape[1], width), NO_TARGET)
        for batch_row, choices in enumerate(targets_of_rows):
            targets[batch_row, : len(choices)] = pad_rows(choices, NO_TARGET, width)
        right_targets = targets[torch.arange(len(rows)), torch.as_tensor(self.answers[rows])]
        inputs = pad(self.model, self._tokens, rows)
        decoder_inputs = self._decoder_inputs(right_targets) | {"wanted": targets}
        for name, tensor in decoder_inputs.items():
            inputs[name] = on_device(tensor, self.model.device)
        return inputs

    def _decoder_inputs(self, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """The decoder's inputs for continuations, int [row, token]."""
        start = decoder_start(self.model, self._setup)
        is_target = (targets != NO_TARGET).long()
        # Also of a continuation that an example lacks: with nothing to attend to, there would be
        # NaN.
        is_target[:, 0] = 1
        decoder_tokens = decoder_inputs_of(targets, start, decoder_filler(self.model))
        return {"decoder_input_ids": decoder_tokens, "decoder_attention_mask": is_target}

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Log-probability of each continuation, [row, choice].

        It is minus infinity where an example has fewer continuations.
        """
        module = self.model.module
        sources: dict[str, torch.Tensor | BaseModelOutput]
        sources = {name: inputs[name] for name in self._tokens}
        log_probabilities_of_choices: list[torch.Tensor] = []
        for targets in inputs["wanted"].unbind(dim=1):
            output = module(**sources, **self._decoder_inputs(targets), use_cache=False)
            # What the encoder gave is the same for every continuation; a mixture of experts needs
            # more of its encoder than the hidden state.
            if not hasattr(output, "encoder_router_logits"):
                encoder_output = BaseModelOutput(last_hidden_state=output.encoder_last_hidden_state)
                sources = {
                    "attention_mask": inputs["attention_mask"],
                    "encoder_outputs": encoder_output,
                }
            by_token = log_probabilities(output.logits, targets)[:, self._given_count :]
            is_lacking = (targets == NO_TARGET).all(dim=-1)
            choice_scores = by_token.sum(dim=-1).masked_fill(is_lacking, float("-inf"))
            log_probabilities_of_choices.append(choice_scores)
        return torch.stack(log_probabilities_of_choices, dim=1)


def check_ends(model: Model, rows: Sequence[Sequence[int]]) -> None:
    """Raise HeadlabError unless all texts have equally many end tokens, at least one.

    The classifier of an encoder-decoder reads its answer at the last one. Other models need none.
    """
    end = getattr(model.module.config, "eos_token_id", None)  # MobileBERT's has no such name
    if not model.module.config.is_encoder_decoder or not isinstance(end, int):
        return
    end_counts = {list(row).count(end) for row in rows}
    if len(end_counts) > 1 or 0 in end_counts:
        raise HeadlabError(
            f"{model.name} reads its answer at the end token ({end}), and the tokenizer ends "
            f"{'no text' if end_counts == {0} else 'not every text'} with one; save the tokenizer "
            "that belongs to the model",
            code="tokenizer.no_end",
        )


def encode_sources(model: Model, texts: Sequence[str], setup: LanguageSetup) -> dict[str, Rows]:
    """`encode` for texts to translate, with the prefix or codes of the language pair."""
    with setup.set_up(model.tokenizer):
        return encode(model, [setup.prefix + text for text in texts])


# Which of a model's classes stands for which label: see `headlab.tasks.labels`.

TRIED_EXAMPLES = 256  # examples of a language that orders of labels are tried on
# Languages that orders of labels are tried in at most, one after another, until one is surely the
# best.
TRIED_LANGUAGES = 4


def label_order(model: Model, task: Task) -> LabelOrder:
    """The columns of the model's logits for the task's labels.

    They are known by the task's label map, or by name, or are found on dev. They are the same
    whatever languages the task is restricted to.

    Raises:
        HeadlabError: The model is not a classifier of this task, or it cannot be told which class
            is which.
    """
    task = task.with_all_languages()
    label_map = None if task.label_map is None else tuple(task.label_map.items())
    order_key = (task.name, task.labels, task.languages, task.seed, label_map)
    if order_key not in model.orders:
        model.orders[order_key] = _label_order(model, task)
        if model.orders[order_key].note:
            warnings.warn(model.orders[order_key].note, stacklevel=2)
    return model.orders[order_key]


def classes_for_spec(model: Model, task: Task) -> JsonObject:
    """What the task of a spec says of how a model answers.

    Returns:
        `classes`, the model's classes by label, where these have other names than the labels;
        `masked`, for a masked language model, the share of tokens that it is asked for.
    """
    if task.likelihood == "tokens" and masks_tokens(model, task):
        return {"masked": MASKED_SHARE}
    classes = assumed_classes(model, task)
    if classes is None:
        return {}
    return {"classes": dict(classes)}


def assumed_classes(model: Model, task: Task) -> Mapping[str, str] | None:
    """The name of the model's class for each label.

    None where the classes have the labels' names, and for a task without labels.
    """
    if task.labels:
        return label_order(model, task).assumed
    return None


def _label_order(model: Model, task: Task) -> LabelOrder:
    """As `label_order`, without its cache."""
    id2label = model.module.config.id2label or {}
    names = [str(name) for _, name in sorted(id2label.items())]
    if task.label_map is not None:
        return _stated_order(
            task, names, columns_by_map(task.name, task.labels, names, task.label_map)
        )
    columns = columns_by_name(task.labels, names)
    if columns is not None:
        return LabelOrder(columns)
    if len(names) == len(task.labels) and are_nameless(names):
        return _best_order(model, task, names)
    counts = (
        f"{model.name} distinguishes {len(names)} classes ({first_names_of(names)}), task {task.name} has {len(task.labels)} "
        f"labels ({first_names_of(task.labels)})"
    )
    if len(names) < len(task.labels):
        raise HeadlabError(
            f"{counts}, and each needs a class of its own; choose a model fine-tuned on this task",
            code="model.labels_mismatch",
        )
    raise HeadlabError(
        f"{counts}; choose a model fine-tuned on this task, or say which class is which label with "
        f"{map_hint(task.labels, names)}",
        code="model.labels_mismatch",
    )


def _stated_order(
    task: Task, names: Sequence[str], columns: tuple[int, ...], note: str = ""
) -> LabelOrder:
    """An order of a model's classes, with their names unless these are the labels.

    Args:
        task: Has the labels.
        names: Of the model's classes.
        columns: The class of each label.
        note: What a reader has to know of the order.
    """
    class_names = [names[column] for column in columns]
    if class_names == list(task.labels):
        return LabelOrder(columns, None, note)
    return LabelOrder(columns, dict(zip(task.labels, class_names, strict=True)), note)


def _best_order(model: Model, task: Task, names: Sequence[str]) -> LabelOrder:
    """The order of nameless classes that is significantly the best on dev."""
    reason = f"{len(names)} labels have too many orders to try"
    if len(names) <= MAX_LABELS_TO_ORDER:
        counts = np.zeros((len(names), len(names)), dtype=np.int64)
        tried_languages: list[str] = []
        english_first = sorted(task.languages, key=lambda name: name != "en")
        for language in english_first[:TRIED_LANGUAGES]:
            counts += _answer_counts(model, task, language, len(names))
            tried_languages.append(language)
            best_order = try_orders(counts)
            answers_tried = f"of {int(counts.sum())} dev answers ({', '.join(tried_languages)})"
            shares = (
                f"{best_order.accuracy:.1%} {answers_tried} right, the next best order "
                f"{best_order.runner_up_accuracy:.1%}"
            )
            if (
                best_order.p_value * TRIED_LANGUAGES <= CHANCE_LEVEL
            ):  # corrected for a look in each language
                labels_and_columns = zip(task.labels, best_order.columns, strict=True)
                meanings = [f"{label} = {names[column]}" for label, column in labels_and_columns]
                note = (
                    f"{model.name} names its classes {first_names_of(names)}; they are taken for "
                    f"{', '.join(meanings)}, which has {shares}; a label map can say otherwise"
                )
                return _stated_order(task, names, best_order.columns, note)
        reason = f"no order of them is significantly better than the others: one has {shares}"
    raise HeadlabError(
        f"{model.name} names its classes {first_names_of(names)}, which does not say which label of task {task.name} each is, "
        f"and {reason}; set it with {map_hint(task.labels, names)}",
        code="model.labels_unknown",
    )


def _answer_counts(model: Model, task: Task, language: str, classes: int) -> Ints:
    """Answers of the untouched model by class and right label, int [class, label]."""
    examples = task.examples(language, "dev", TRIED_EXAMPLES)
    inputs = _labelled_inputs(model, task, examples, range(classes))
    counts = np.zeros((classes, len(task.labels)), dtype=np.int64)
    by_length = np.argsort(inputs.lengths, kind="stable")
    for rows in np.array_split(by_length, max(1, len(examples) // 16)):
        with torch.inference_mode(), model.active(ActiveGates()):
            logits = inputs.logits(inputs.tensors(rows))
            targets = inputs.targets(rows)
        is_target = targets != NO_TARGET
        if not bool(logits[is_target].isfinite().all()):
            raise not_finite_error(
                model,
                f"outputs that are not finite for dev examples of task {task.name} in {language}",
                code="model.answers_not_finite",
            )
        answers = logits.argmax(dim=-1)[is_target].cpu().numpy()
        np.add.at(counts, (answers, targets[is_target].cpu().numpy()), 1)
    return counts
