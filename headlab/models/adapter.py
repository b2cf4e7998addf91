"""Our adapters: a LoRA and a head for texts or words (a pooler too for texts) on top of a base BERT, merged at load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.alone import alone

CONFIG, WEIGHTS, LABELS, TRAINING = "adapter_config.json", "adapter_model.safetensors", "labels.json", "training.json"
TEXTS, WORDS = "texts", "words"


@dataclass(frozen=True)
class Labels:
    """What an adapter answers: class names by id, the text put before every input, and whether it labels words."""

    labels: tuple[str, ...]
    prefix: str = ""
    words: bool = False


def merge(base_folder: Path, adapter_folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base with the adapter's weights added in, float32, in evaluation mode, and its tokenizer.

    Raises HeadlabError if a file is missing or torn, or the adapter belongs to a base of another shape.
    """
    named = read_labels(adapter_folder)
    check_adapter(adapter_folder)
    module, tokenizer = load_classifier(base_folder, named.labels, words=named.words)
    try:
        with alone():
            tuned = PeftModel.from_pretrained(module, str(adapter_folder), torch_device="cpu")
            merged = tuned.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise HeadlabError(
            f"the adapter {adapter_folder.name} does not fit its base: {first_line(error)}; make it again",
            code="adapter.other_base",
        ) from error
    merged.requires_grad_(False)
    return merged.eval(), tokenizer


def read_labels(adapter_folder: Path) -> Labels:
    """The adapter's labels.json. Raises HeadlabError if it is not one."""
    value = read_json(adapter_folder / LABELS)
    names, prefix = (value.get("labels"), value.get("prefix")) if isinstance(value, dict) else (None, None)
    if not (isinstance(names, list) and len(names) > 1 and all(isinstance(n, str) for n in names)):
        raise HeadlabError(
            f"{LABELS} of {adapter_folder.name} must hold a list of two or more label names; make it again",
            code="adapter.labels_invalid",
        )
    if prefix != "":
        raise HeadlabError(
            f"{LABELS} of {adapter_folder.name} asks for the prefix {prefix!r}; adapters here take none",
            code="adapter.prefix_unsupported",
        )
    answers = value.get("answers", TEXTS)  # the first adapters do not say
    if answers not in (TEXTS, WORDS):
        raise HeadlabError(
            f"{LABELS} of {adapter_folder.name} says that it answers {answers!r}; make it again",
            code="adapter.answer_unknown",
        )
    return Labels(tuple(names), "", answers == WORDS)


def check_adapter(adapter_folder: Path) -> None:
    """Raise HeadlabError unless the folder holds a LoRA in safetensors, the only kind read here."""
    if not (adapter_folder / WEIGHTS).is_file():
        raise HeadlabError(
            f"the adapter {adapter_folder.name} has no {WEIGHTS}; pickled weights are not read",
            code="adapter.weights_missing",
        )
    value = read_json(adapter_folder / CONFIG)
    if not isinstance(value, dict) or value.get("peft_type") != "LORA":
        raise HeadlabError(
            f"{CONFIG} of {adapter_folder.name} describes no LoRA; make the adapter again", code="adapter.not_lora"
        )


def load_classifier(
    base_folder: Path, labels: Sequence[str], *, words: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A base BERT with a new head (drawn from torch's generator), float32, SDPA attention; and its tokenizer.

    words: a head that labels every token, else one for the whole text.
    """
    kind = BertForTokenClassification if words else BertForSequenceClassification
    try:
        with alone():
            module = kind.from_pretrained(
                base_folder,
                id2label=dict(enumerate(labels)),
                label2id={name: i for i, name in enumerate(labels)},
                use_safetensors=True,
                attn_implementation="sdpa",
                dtype=torch.float32,
            )
            tokenizer = AutoTokenizer.from_pretrained(base_folder, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise HeadlabError(
            f"the base {base_folder.name} cannot be read: {first_line(error)}; delete it and try again",
            code="model.base_unreadable",
        ) from error
    return module, tokenizer


def first_line(error: Exception) -> str:
    """The start of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
