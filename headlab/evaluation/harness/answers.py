"""Texts that a task of lm-evaluation-harness has a model write, with some heads off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria, StoppingCriteriaList

from headlab.core import HeadlabError, Json
from headlab.evaluation.context import context_length
from headlab.hooks import ActiveGates, Model

NEW_TOKENS = 256  # of a generated answer, where the task does not say
# The first one given counts.
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
SAMPLING_NAMES = (
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)
SEARCH_NAMES = (
    "num_beams",
    "length_penalty",
    "early_stopping",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "min_new_tokens",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "exponential_decay_length_penalty",
)
# Settings that change nothing at these values.
NEUTRAL: Mapping[str, Json] = MappingProxyType({"num_return_sequences": 1, "use_cache": True})


@dataclass(frozen=True)
class AnswerSettings:
    """How a task wants its answers written.

    Attributes:
        ends: texts before which an answer ends.
        max_tokens: maximum number of tokens of an answer.
        search: settings that `generate` of transformers gets.
        sampling: settings that ask for answers drawn at random, which headlab does not do.
        unused: further settings that have no effect.
    """

    ends: tuple[str, ...] = ()
    max_tokens: int = NEW_TOKENS
    search: Mapping[str, Json] = field(default_factory=dict)
    sampling: Mapping[str, Json] = field(default_factory=dict)
    unused: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Json]) -> AnswerSettings:
        """The settings in a task's `generation_kwargs`, which the harness reads in this way too."""
        remaining = {name: value for name, value in settings.items() if value is not None}
        end_texts = remaining.pop("until", [])
        ends = [end_texts] if isinstance(end_texts, str) else cast("list[Json]", end_texts)
        lengths = [remaining.pop(name) for name in LENGTH_NAMES if name in remaining]
        sampling = {name: remaining.pop(name) for name in SAMPLING_NAMES if name in remaining}
        search = {name: remaining.pop(name) for name in SEARCH_NAMES if name in remaining}
        for name, value in NEUTRAL.items():
            if remaining.get(name) == value:
                del remaining[name]
        if not _draws(sampling):
            sampling = {}
        return cls(
            ends=tuple(str(end) for end in ends if end),
            max_tokens=int(cast("int", lengths[0])) if lengths else NEW_TOKENS,
            search=search,
            sampling=sampling,
            unused=remaining,
        )


def _draws(sampling: Mapping[str, Json]) -> bool:
    """Whether answers are to be drawn at random; a temperature alone asks for it too."""
    if "do_sample" in sampling:
        return bool(sampling["do_sample"])
    return float(cast("float", sampling.get("temperature", 0))) > 0


class AnswerEnds(StoppingCriteria):
    """Stops a text when one of some others has been written.

    Args:
        tokenizer: which decodes.
        start: number of tokens before what is written.
        ends: the texts.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, start: int, ends: Sequence[str]) -> None:
        self.tokenizer = tokenizer
        self.start = start
        self.ends = ends

    def __call__(
        self, input_ids: torch.LongTensor, scores: object, **_: object
    ) -> torch.BoolTensor:
        """Whether each row is done, bool [row]."""
        texts = self.tokenizer.batch_decode(input_ids[:, self.start :])
        has_ended = [any(end in text for end in self.ends) for text in texts]
        return cast("torch.BoolTensor", torch.tensor(has_ended, device=input_ids.device))


def check_answer_length(model: Model, task: str, settings: AnswerSettings) -> None:
    """Raise HeadlabError for a task whose answers leave no room for a context."""
    limit = context_length(model)
    if settings.max_tokens >= limit:
        raise HeadlabError(
            f"{task}: answers of up to {settings.max_tokens:,} tokens are asked for, and "
            f"{model.name} takes {limit:,} in all; use a model that takes more, or lower "
            "max_gen_toks in a copy of the task",
            code="lm_eval.answer_too_long",
        )


def written_answer(
    model: Model,
    gates: torch.Tensor,
    context: Sequence[int],
    settings: AnswerSettings,
    end_token: int,
) -> str:
    """The likeliest continuation of a context, up to a text that ends it.

    Args:
        model: a decoder.
        gates: of its heads, float [layer, head].
        context: its tokens, which fit the model together with the answer.
        settings: of the task.
        end_token: the token that ends a text.
    """
    module: Any = model.module
    context_tokens = torch.tensor([list(context)], device=model.device)
    end_tokens = {end_token}
    if (own_ends := module.generation_config.eos_token_id) is not None:
        end_tokens |= set(own_ends) if isinstance(own_ends, list) else {own_ends}
    padding = model.tokenizer.pad_token_id
    ends = AnswerEnds(model.tokenizer, len(context), settings.ends)
    with torch.inference_mode(), model.active(ActiveGates(gates=gates)):
        tokens = module.generate(
            context_tokens,
            attention_mask=torch.ones_like(context_tokens),
            max_new_tokens=settings.max_tokens,
            do_sample=False,
            eos_token_id=sorted(end_tokens),
            pad_token_id=end_token if padding is None else padding,
            stopping_criteria=StoppingCriteriaList([ends]),
            **settings.search,
        )
    text = str(model.tokenizer.decode(tokens[0, len(context) :], skip_special_tokens=True))
    end_positions = [text.find(end) for end in settings.ends if end in text]
    return text[: min(end_positions, default=len(text))]
