"""Examples as model inputs: texts to classify, words to label, sources with their targets."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from headlab.core import HeadlabError, Ints, JsonObject
from headlab.core.devices import on_device
from headlab.evaluation.context import OmissionsByExample, default_context, longest, nothing_omitted
from headlab.evaluation.encoding import (
    IGNORED,
    MASKED,
    Choices,
    Chosen,
    DeviceRows,
    NextTokens,
    Rows,
    Sized,
    TokenRows,
    asked_words,
    check_lengths,
    check_tokens,
    decoder_filler,
    encode,
    encode_words,
    first_tokens,
    lengths,
    log_probabilities,
    masks_tokens,
    omitted_from_texts,
    omitted_from_words,
    pad,
    padded,
    require,
    require_padding,
    shifted,
)
from headlab.hooks import (
    Active,
    Model,
    configured_start,
    needs_of,
    not_finite,
    teach_positions,
    tokens_note,
)
from headlab.models import PADDING_MASK, held, tokenise, tokenizer_output
from headlab.models.special_ids import is_known
from headlab.tasks import (
    FEW,
    LEVEL,
    Example,
    LabelOrder,
    Task,
    as_stated,
    by_name,
    map_hint,
    nameless,
    sides,
    some,
    try_orders,
)

# What a translation model needs besides a text: a prefix, or the languages by its tokenizer's own codes.

TASKS = re.compile(r"translation_(\w+?)_to_(\w+)")  # T5's names of the tasks it was trained on
CODE = re.compile(r"[a-z]{2,3}_[A-Za-z0-9]+")  # de_DE, deu_Latn


@dataclass(frozen=True)
class LanguageSetup:
    """What precedes every source and every translation; nothing for a model of one language pair.

    prefix: text before a source.  source, target: the tokenizer's language codes.  first: first token of a translation,
    which is given, not predicted.  start: first token of the decoder, where the model's config names none.
    """

    prefix: str = ""
    source: str = ""
    target: str = ""
    first: int | None = None
    start: int | None = None

    @contextmanager
    def set_up(self, tokenizer: PreTrainedTokenizerBase) -> Iterator[None]:
        """The tokenizer with the two codes set, until the block ends; other threads wait for it."""
        with held(tokenizer):
            if not self.source:
                yield
                return
            before = tokenizer.src_lang, tokenizer.tgt_lang
            try:
                tokenizer.src_lang, tokenizer.tgt_lang = self.source, self.target
                yield
            finally:
                tokenizer.src_lang, tokenizer.tgt_lang = before

    def settings(self) -> dict[str, int]:
        """The same settings as keyword arguments of transformers' `generate`."""
        token_ids = {"forced_bos_token_id": self.first, "decoder_start_token_id": self.start}
        return {name: token for name, token in token_ids.items() if token is not None}


def language_setup(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, language: str
) -> LanguageSetup:
    """Prefix or language codes of a model for a pair like en-de; a language that is not a pair is on both sides.

    A T5 uses the prefix in its `task_specific_params`, a Marian model of many targets a mark (>>de<<), mBART, M2M and
    NLLB their codes.  Raises HeadlabError where a model needs a prefix or code that it does not have.
    """
    source, target = sides(language)
    if source != target:
        prefixes = _prefixes(config)
        if prefixes:
            return LanguageSetup(prefix=_prefix(prefixes, source, target))
        marks = getattr(tokenizer, "supported_language_codes", None)
        if marks:
            return LanguageSetup(
                prefix=f">>{_code(target, [mark.strip('><') for mark in marks])}<< "
            )
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        return _by_codes(config, tokenizer, source, target)
    return LanguageSetup()


def decoder_start(model: Model, setup: LanguageSetup) -> int:
    """The first token of a decoder's inputs.

    Args:
        model: An encoder-decoder.
        setup: Of its languages, which may say the token.

    Raises:
        HeadlabError: Neither they nor the model's configuration say one that the model has.
    """
    start = configured_start(model) if setup.start is None else setup.start
    if not is_known(
        start, model.module.config
    ):  # the decoder may have more tokens than the encoder
        check_tokens(model, [[start]])
    return start


def _prefixes(config: PretrainedConfig) -> dict[tuple[str, str], str]:
    """{(source, target): prefix} of the translations named in a model's config."""
    named = getattr(config, "task_specific_params", None) or {}
    found = ((TASKS.fullmatch(name), params) for name, params in named.items())
    return {
        (m[1], m[2]): str((params or {}).get("prefix", "")) for m, params in found if m is not None
    }


def _prefix(prefixes: dict[tuple[str, str], str], source: str, target: str) -> str:
    found = [
        p
        for (a, b), p in prefixes.items()
        if (_first(a), _first(b)) == (_first(source), _first(target))
    ]
    if len(found) != 1:
        raise HeadlabError(
            f"the model's task_specific_params names translations of {', '.join('-'.join(p) for p in prefixes)}, and "
            "it "
            f"is to translate {source}-{target}; put translation_{_first(source)}_to_{_first(target)} with its prefix "
            "(it may be empty) into its config.json",
            code="translation.prefix_missing",
        )
    return found[0]


def _by_codes(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, source: str, target: str
) -> LanguageSetup:
    codes = list(
        getattr(tokenizer, "lang_code_to_token", None)
        or filter(CODE.fullmatch, tokenizer.all_special_tokens)
    )
    if not codes:
        raise HeadlabError(
            f"{type(tokenizer).__name__} must be told its languages, and headlab cannot determine how; "
            "use a model of one language pair",
            code="translation.codes_missing",
        )
    found = LanguageSetup(source=_code(source, codes), target=_code(target, codes))
    token_of_code = cast(
        Callable[[str], int], getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)
    )
    number = int(token_of_code(found.target))
    with found.set_up(tokenizer):
        ids = tokenizer_output(tokenizer, text_target="a")["input_ids"]
    if ids[0] == number:
        return LanguageSetup(source=found.source, target=found.target, first=number)
    if (
        ids[-1] == number and config.model_type == "mbart"
    ):  # its decoder starts with the last token of its targets
        return LanguageSetup(source=found.source, target=found.target, start=number)
    raise HeadlabError(
        f"{type(tokenizer).__name__} does not put the code {found.target} before a translation (legacy_behaviour?); "
        "save it again with the code in front",
        code="translation.code_not_in_front",
    )


def _code(asked: str, codes: Iterable[str]) -> str:
    """The code of a language: an identical one, or the only one that starts with the same language."""
    codes = list(codes)
    same = [code for code in codes if _plain(code) == _plain(asked)]
    found = same or [code for code in codes if _first(code) == _first(asked)]
    if len(found) != 1:
        some = ", ".join((found or codes)[:6])
        raise HeadlabError(
            f"the model's tokenizer has {'several codes' if found else 'no code'} for {asked!r} ({some}…); name the "
            "pair, and its files, by the tokenizer's own codes, like eng_Latn-deu_Latn",
            code="translation.code_ambiguous" if found else "translation.code_unknown",
        )
    return found[0]


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def _first(code: str) -> str:
    return _plain(code).partition("-")[0]


# Examples as inputs.


class Inputs(Sized, Protocol):
    """Examples of one language, tokenised once.

    lengths: int [example], tokens that determine a batch's padding.  units: int [example], answers per example:
    one for a text, one per labelled word, one per token of a target.  answers: int [unit], the right
    answers, example by example.  note: what to know beside figures of these examples; mostly empty.  omitted: what of
    them was cut, or has no answer.
    """

    note: str
    omitted: OmissionsByExample
    lengths: Ints
    units: Ints
    answers: Ints

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Model inputs of some examples, padded to the longest of them."""

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Right answers: int [row], or [row, token] with -100 where there is no answer.

        width: least number of tokens; rows of a larger batch keep its padding.
        """

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The model's scores, [row, label] or [row, token, label], labels in the task's order."""


def read(model: Model, task: Task, examples: Sequence[Example], language: str) -> Inputs:
    """The examples of a language as model inputs. Raises HeadlabError if the model does not suit the task."""
    if examples[0].choices:
        decodes = model.module.config.is_encoder_decoder and model.module.can_generate()
        return (
            TargetChoices(model, task, examples, language)
            if decodes
            else Choices(model, task, examples)
        )
    if task.likelihood:
        return NextTokens(model, task, examples)
    if examples[0].target is not None:
        return Pairs(model, task, examples, language)
    return _labelled(model, task, examples)


def _labelled(
    model: Model, task: Task, examples: Sequence[Example], columns: Sequence[int] | None = None
) -> Texts | Words:
    return (Words if examples[0].words else Texts)(model, task, examples, columns)


class Classified:
    """What texts and words with labels share. columns: of the model's scores; None for those of the task's labels."""

    note = ""
    _tokens: dict[str, Rows]

    def __init__(
        self, model: Model, task: Task, columns: Sequence[int] | None, ending: str, kind: str
    ) -> None:
        require(model, task, ending, kind)
        self.model, self._columns = model, list(columns or label_order(model, task).columns)

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


class Texts(Classified):
    """Texts or pairs of texts with one label each, for a sequence classifier."""

    def __init__(
        self,
        model: Model,
        task: Task,
        examples: Sequence[Example],
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model, task, columns, "ForSequenceClassification", "sequence classifier")
        self.note = tokens_note(model, needs_of(model, examples))
        pairs = [e.pair for e in examples]
        second = None if all(p is None for p in pairs) else [p or "" for p in pairs]
        texts = [e.text for e in examples]
        self._tokens = encode(model, texts, second)
        check_ends(model, self._tokens["input_ids"])
        self.omitted = omitted_from_texts(model, self._tokens["input_ids"], texts, second)
        self.answers = np.array([e.label for e in examples], dtype=np.int64)
        self.lengths = lengths(self._tokens["input_ids"])
        self.units = np.ones_like(self.lengths)

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Labels, int [row]."""
        return on_device(self.answers[rows], self.model.device)


class Words(Classified):
    """Sentences with one label per word, for a token classifier: a word is scored at its first token.

    words: [example][answer], which word of the example each answer is of.
    """

    def __init__(
        self,
        model: Model,
        task: Task,
        examples: Sequence[Example],
        columns: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model, task, columns, "ForTokenClassification", "token classifier")
        self.note = tokens_note(model, needs_of(model, examples))
        sentences = [list(e.words) for e in examples]
        encoded = encode_words(model, sentences)
        self._tokens = encoded.columns
        words = encoded.word_ids
        self._labels = [first_tokens(words[row], e.labels) for row, e in enumerate(examples)]
        self._label_rows = DeviceRows(self._labels, model.device)
        self.words = [asked_words(words[row], e.labels) for row, e in enumerate(examples)]
        labels = [e.labels for e in examples]
        self.omitted = omitted_from_words(
            model, self._tokens["input_ids"], sentences, labels, self.words
        )
        self.lengths = lengths(self._tokens["input_ids"])
        asked = [[label for label in row if label != IGNORED] for row in self._labels]
        self.units = lengths(asked)
        if not self.units.any():
            raise HeadlabError(
                f"{task.name}: none of the labelled words of {len(examples):,} "
                f"{'sentence' if len(examples) == 1 else 'sentences'} has an answer of {model.name}, "
                f"{self.omitted.first(len(examples)).sentence}; give sentences with words that its tokenizer knows",
                code="data.words_unanswered",
            )
        self.answers = np.concatenate(asked).astype(np.int64)

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Labels at the words' first tokens, int [row, token]."""
        return self._label_rows.padded(rows, IGNORED, width)


class Pairs:
    """Sources with their targets, for a sequence-to-sequence model with teacher forcing.

    tokens: of the sources, with the prefix or codes of the language pair.
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
        self.model, self._told = (
            model,
            language_setup(model.module.config, model.tokenizer, language),
        )
        self.tokens = encode_sources(model, [e.text for e in examples], self._told)
        texts = [e.target or "" for e in examples]
        limit = longest(model, targets=True)
        with self._told.set_up(model.tokenizer):
            targets = tokenise(model.tokenizer, texts, target=True, max_tokens=limit).columns
        self.omitted = self._omitted(examples, targets["input_ids"], limit)
        self._given = int(
            self._told.first is not None
        )  # first tokens of a target that are not answers
        whole = slice(-1) if self._told.start is not None else slice(None)
        self._targets: Rows = [row[whole] for row in targets["input_ids"]]
        check_tokens(model, self._targets)
        self.lengths = lengths(self.tokens["input_ids"]) + lengths(self._targets)
        self.units = lengths(self._targets) - self._given
        self.answers = np.concatenate([row[self._given :] for row in self._targets]).astype(
            np.int64
        )

    def _omitted(
        self, examples: Sequence[Example], targets: Rows, limit: int
    ) -> OmissionsByExample:
        """Which examples were cut, in their source or in their target.

        Args:
            examples: the examples, in the order of `targets`.
            targets: [example][token], as the tokenizer cut them.
            limit: maximum number of tokens of a target.
        """
        tokenizer = self.model.tokenizer
        sources = [self._told.prefix + example.text for example in examples]
        full = [row for row, ids in enumerate(targets) if len(ids) >= limit]
        with self._told.set_up(tokenizer):
            omitted = omitted_from_texts(self.model, self.tokens["input_ids"], sources)
            for row in full:
                uncut = tokenise(tokenizer, [examples[row].target or ""], target=True).columns[
                    "input_ids"
                ][0]
                omitted.cut[row] |= len(uncut) > len(targets[row])
        return omitted

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Sources, and targets shifted right by one position."""
        targets = self._padded(rows)
        start = decoder_start(self.model, self._told)
        before = shifted(targets, start, decoder_filler(self.model))
        asked = (
            targets != IGNORED
        ).long()  # padding changes no answer, but would enter the heads' means
        return pad(self.model, self.tokens, rows) | {
            "decoder_input_ids": before,
            "decoder_attention_mask": asked,
        }

    def targets(self, rows: Ints, width: int = 0) -> torch.Tensor:
        """Tokens of the targets, int [row, token]."""
        found = self._padded(rows, width)
        found[:, : self._given] = IGNORED
        return found

    def _padded(self, rows: Ints, width: int = 0) -> torch.Tensor:
        return on_device(
            padded([self._targets[i] for i in rows], IGNORED, width), self.model.device
        )

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of the next token, [row, token, vocabulary]."""
        found: torch.Tensor = self.model.module(**inputs, use_cache=False).logits
        return found


class TargetChoices(Chosen):
    """Contexts with several continuations each, for a sequence-to-sequence model; also sources with translations.

    The encoder reads a context once; the decoder gets one continuation after the other, without an end token, as in
    lm-evaluation-harness.
    """

    note = ""

    def __init__(
        self, model: Model, task: Task, examples: Sequence[Example], language: str
    ) -> None:
        super().__init__(examples)
        require_padding(model)
        self.model, self._told = (
            model,
            language_setup(model.module.config, model.tokenizer, language),
        )
        names, tokenizer = [example.reference for example in examples], model.tokenizer
        first = [] if self._told.first is None else [self._told.first]
        self._given = len(first)  # first tokens of a continuation, which are not scored
        with self._told.set_up(tokenizer):
            found = tokenizer_output(
                tokenizer, [self._told.prefix + example.text for example in examples]
            )
            own = [
                tokenizer_output(tokenizer, text_target=list(e.choices), add_special_tokens=False)[
                    "input_ids"
                ]
                for e in examples
            ]
        self._tokens: dict[str, Rows] = {name: list(found[name]) for name in found}
        self._tokens.setdefault(PADDING_MASK, [[1] * len(row) for row in self._tokens["input_ids"]])
        self._targets: list[Rows] = [[[*first, *tokens] for tokens in rows] for rows in own]
        check_lengths(model, task.name, names, self._tokens["input_ids"])
        self.omitted = nothing_omitted(model, len(examples))
        self.note = default_context(model)
        for name, context, rows in zip(
            names, self._tokens["input_ids"], self._targets, strict=True
        ):
            if not context:
                raise HeadlabError(
                    f"{task.name}, example {name}: the tokenizer of {model.name} gives its context no token; give it a "
                    "context",
                    code="data.context_empty",
                )
            check_lengths(model, task.name, [name] * len(rows), rows, targets=True)
            if any(len(row) <= self._given for row in rows):
                raise HeadlabError(
                    f"{task.name}, example {name}: the tokenizer of {model.name} gives one of its choices no token; "
                    "give a longer choice",
                    code="data.choice_empty",
                )
        check_tokens(
            model, [row for rows in (self._tokens["input_ids"], *self._targets) for row in rows]
        )
        self.lengths: Ints = lengths(self._tokens["input_ids"]) + np.array(
            [max(map(len, r)) for r in self._targets]
        )
        teach_positions(model.module)

    def tensors(self, rows: Ints) -> dict[str, torch.Tensor]:
        """Contexts, the right continuations as the decoder's inputs, and the tokens of all, [row, choice, token]."""
        choices, width = (
            self.bytes.shape[1],
            max(len(tokens) for i in rows for tokens in self._targets[i]),
        )
        wanted = torch.full((len(rows), choices, width), IGNORED)
        for place, i in enumerate(rows):
            wanted[place, : len(self._targets[i])] = padded(self._targets[i], IGNORED, width)
        right = wanted[torch.arange(len(rows)), torch.as_tensor(self.answers[rows])]
        found = self._decoded(right) | {"wanted": wanted}
        return pad(self.model, self._tokens, rows) | {
            name: on_device(t, self.model.device) for name, t in found.items()
        }

    def _decoded(self, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """The decoder's inputs for continuations, int [row, token]."""
        start = decoder_start(self.model, self._told)
        real = (targets != IGNORED).long()
        real[:, 0] = (
            1  # also of a continuation that an example lacks: with nothing to attend to, there would be NaN
        )
        before = shifted(targets, start, decoder_filler(self.model))
        return {"decoder_input_ids": before, "decoder_attention_mask": real}

    def logits(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Log-probability of each continuation, [row, choice]; minus infinity where an example has fewer."""
        module = self.model.module
        sources: dict[str, torch.Tensor | BaseModelOutput]
        sources = {name: inputs[name] for name in self._tokens}
        log_probabilities_of_choices: list[torch.Tensor] = []
        for targets in inputs["wanted"].unbind(dim=1):
            output = module(**sources, **self._decoded(targets), use_cache=False)
            # What the encoder gave is the same for every continuation; a mixture of experts wants more of its encoder.
            if not hasattr(output, "encoder_router_logits"):
                encoded = BaseModelOutput(last_hidden_state=output.encoder_last_hidden_state)
                sources = {"attention_mask": inputs["attention_mask"], "encoder_outputs": encoded}
            by_token = log_probabilities(output.logits, targets)[:, self._given :]
            is_lacking = (targets == IGNORED).all(dim=-1)
            log_probabilities_of_choices.append(
                by_token.sum(dim=-1).masked_fill(is_lacking, float("-inf"))
            )
        return torch.stack(log_probabilities_of_choices, dim=1)


def check_ends(model: Model, rows: Sequence[Sequence[int]]) -> None:
    """Raise HeadlabError unless the texts have as many end tokens each as an encoder-decoder's classifier needs.

    It reads its answer at the last one.
    """
    end = getattr(model.module.config, "eos_token_id", None)  # MobileBERT's has no such name
    if not model.module.config.is_encoder_decoder or not isinstance(end, int):
        return
    ends = {list(row).count(end) for row in rows}
    if len(ends) > 1 or 0 in ends:
        raise HeadlabError(
            f"{model.name} reads its answer at the end token ({end}), and the tokenizer ends "
            f"{'no text' if ends == {0} else 'not every text'} with one; save the tokenizer that belongs to the model",
            code="tokenizer.no_end",
        )


def encode_sources(model: Model, texts: Sequence[str], told: LanguageSetup) -> dict[str, Rows]:
    """`encode` for texts to translate, with the prefix or codes of the language pair."""
    with told.set_up(model.tokenizer):
        return encode(model, [told.prefix + text for text in texts])


# Which of a model's classes stands for which label: see `headlab.tasks.labels`.

TRIED = 256  # examples of a language that orders of labels are tried on
LANGUAGES = (
    4  # that they are tried in, at most, one after another until one order is surely the best
)


def label_order(model: Model, task: Task) -> LabelOrder:
    """The columns of the model's logits for the task's labels: by the task's label map, by name, or found on dev.

    The same whatever languages the task is restricted to.  Raises HeadlabError if the model is not a classifier of this
    task, or where it cannot be told which class is which.
    """
    task = task.unrestricted()
    told = None if task.label_map is None else tuple(task.label_map.items())
    key = (task.name, task.labels, task.languages, task.seed, told)
    if key not in model.orders:
        model.orders[key] = _label_order(model, task)
        if model.orders[key].note:
            warnings.warn(model.orders[key].note, stacklevel=2)
    return model.orders[key]


def classes_of(model: Model, task: Task) -> JsonObject:
    """What a spec's task says of how a model answers: its classes where these have other names than the labels.

    masked: of a masked language model, the share of tokens that it is asked for.
    """
    if task.likelihood == "tokens" and masks_tokens(model, task):
        return {"masked": MASKED}
    classes = assumed_classes(model, task)
    return {} if classes is None else {"classes": dict(classes)}


def assumed_classes(model: Model, task: Task) -> Mapping[str, str] | None:
    """The name of the model's class for each label; None where the labels are their names, and without labels."""
    return label_order(model, task).assumed if task.labels else None


def _label_order(model: Model, task: Task) -> LabelOrder:
    names = [str(name) for _, name in sorted((model.module.config.id2label or {}).items())]
    if task.label_map is not None:
        return _assumed(task, names, as_stated(task.name, task.labels, names, task.label_map))
    columns = by_name(task.labels, names)
    if columns is not None:
        return LabelOrder(columns)
    if len(names) == len(task.labels) and nameless(names):
        return _found(model, task, names)
    counts = (
        f"{model.name} distinguishes {len(names)} classes ({some(names)}), task {task.name} has {len(task.labels)} "
        f"labels ({some(task.labels)})"
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


def _assumed(
    task: Task, names: Sequence[str], columns: tuple[int, ...], note: str = ""
) -> LabelOrder:
    named = {label: names[column] for label, column in zip(task.labels, columns, strict=True)}
    return LabelOrder(columns, None if all(a == b for a, b in named.items()) else named, note)


def _found(model: Model, task: Task, names: Sequence[str]) -> LabelOrder:
    """The order of nameless classes that is significantly the best on dev."""
    why = f"{len(names)} labels have too many orders to try"
    if len(names) <= FEW:
        counts, seen = np.zeros((len(names), len(names)), dtype=np.int64), list[str]()
        for language in sorted(task.languages, key=lambda name: name != "en")[:LANGUAGES]:
            counts += _counted(model, task, language, len(names))
            tried, seen = try_orders(counts), [*seen, language]
            where = f"of {int(counts.sum())} dev answers ({', '.join(seen)})"
            shares = f"{tried.right:.1%} {where} right, the next best order {tried.next:.1%}"
            if tried.p * LANGUAGES <= LEVEL:  # a look for each language
                named = ", ".join(
                    f"{label} = {names[at]}"
                    for label, at in zip(task.labels, tried.columns, strict=True)
                )
                return _assumed(
                    task, names, tried.columns,
                    f"{model.name} names its classes {some(names)}; they are taken for {named}, which has {shares}; "
                    "a label map can say otherwise",
                )  # fmt: skip
        why = f"no order of them is significantly better than the others: one has {shares}"
    raise HeadlabError(
        f"{model.name} names its classes {some(names)}, which does not say which label of task {task.name} each is, "
        f"and {why}; set it with {map_hint(task.labels, names)}",
        code="model.labels_unknown",
    )


def _counted(model: Model, task: Task, language: str, classes: int) -> Ints:
    """Answers of the untouched model by class and right label, int [class, label]."""
    examples = task.examples(language, "dev", TRIED)
    inputs = _labelled(model, task, examples, range(classes))
    counts = np.zeros((classes, len(task.labels)), dtype=np.int64)
    for rows in np.array_split(
        np.argsort(inputs.lengths, kind="stable"), max(1, len(examples) // 16)
    ):
        with torch.inference_mode(), model.active(Active()):
            logits, targets = inputs.logits(inputs.tensors(rows)), inputs.targets(rows)
        asked = targets != IGNORED
        if not bool(logits[asked].isfinite().all()):
            raise not_finite(
                model,
                f"outputs that are not finite for dev examples of task {task.name} in {language}",
                code="model.answers_not_finite",
            )
        answers = logits.argmax(dim=-1)[asked].cpu().numpy()
        np.add.at(counts, (answers, targets[asked].cpu().numpy()), 1)
    return counts
