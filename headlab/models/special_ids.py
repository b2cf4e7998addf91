"""Special tokens that a model's configuration names.

One pads rows; some the model does not have.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TypeGuard

from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import HeadlabError, read_json
from headlab.models.untrusted import can_be_built

PAD = "pad_token_id"
START = "decoder_start_token_id"
SIZES = ("vocab_size", "decoder_vocab_size", "src_vocab_size", "tgt_vocab_size")
GENERATION = "generation_config.json"


def vocabulary_size(config: PretrainedConfig) -> int | None:
    """Number of tokens that a model with this configuration has.

    None where its configuration does not say.
    """
    sizes = [getattr(config.get_text_config(), name, None) for name in SIZES]
    return max((size for size in sizes if isinstance(size, int)), default=None)


def is_known_token(token_id: object, config: PretrainedConfig) -> TypeGuard[int]:
    """Whether something is the id of a token that a model with this configuration has."""
    size = vocabulary_size(config)
    return type(token_id) is int and token_id >= 0 and (size is None or token_id < size)


def config_padding_id(config: PretrainedConfig) -> int | None:
    """The padding token that a configuration names, also in its part for texts.

    None for none that the model has.
    """
    padding_ids = [getattr(part, PAD, None) for part in (config.get_text_config(), config)]
    return next((token_id for token_id in padding_ids if is_known_token(token_id, config)), None)


def generation_padding(folder: Path, config: PretrainedConfig) -> int | None:
    """The padding token that a folder's generation_config.json names.

    None for none that the model has.
    """
    path = folder / GENERATION
    settings = read_json(path) if path.is_file() else None
    token_id = settings.get(PAD) if isinstance(settings, dict) else None
    if is_known_token(token_id, config):
        return token_id
    return None


def reads_last_token(kind: type[PreTrainedModel]) -> bool:
    """Whether a classifier reads its answer at the last token that is no padding token.

    The padding token is the configuration's.

    It compares tokens with `pad_token_id` for that, and does not look at the mask.
    """
    if not kind.__name__.endswith("ForSequenceClassification"):
        return False
    code = getattr(inspect.unwrap(kind.forward), "__code__", None)
    return code is not None and PAD in code.co_names


def padding_id(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that fills up rows.

    It is the tokenizer's, or the configuration's where the model does not have that.

    Classifiers that look for the configuration's padding token are given that one. Elsewhere
    padding is masked, so that any token does.

    Args:
        module: The model.
        tokenizer: Its tokenizer.

    Returns:
        None if neither names one.
    """
    tokenizer_padding: int | None = tokenizer.pad_token_id
    config_padding = config_padding_id(module.config)
    if config_padding is None:
        return tokenizer_padding
    if not is_known_token(tokenizer_padding, module.config) or reads_last_token(type(module)):
        return config_padding
    return tokenizer_padding


def pads_otherwise(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a model's answers depend on which token pads, and it is not the tokenizer's.

    Earlier versions of headlab padded with the tokenizer's, and such a model then read its answers
    in the padding.
    """
    tokenizer_padding = tokenizer.pad_token_id
    return (
        tokenizer_padding is not None
        and reads_last_token(type(module))
        and padding_id(module, tokenizer) != tokenizer_padding
    )


def check_named_tokens(kind: type[PreTrainedModel], config: PretrainedConfig, name: str) -> None:
    """Raise HeadlabError for a special token that a model lacks and needs.

    The configuration names the token.

    Args:
        kind: The model's class.
        config: Its configuration.
        name: The model, in messages.
    """
    padding = getattr(config.get_text_config(), PAD, None)
    is_unknown = padding is not None and not is_known_token(padding, config)
    if is_unknown and (reads_last_token(kind) or not can_be_built(kind, config, AssertionError)):
        raise _unknown_token(PAD, padding, config, name)
    start = getattr(config, START, None)
    if config.is_encoder_decoder and start is not None and not is_known_token(start, config):
        raise _unknown_token(START, start, config, name)


def _unknown_token(
    setting: str, token_id: object, config: PretrainedConfig, name: str
) -> HeadlabError:
    valid_values = (
        "the id of a token" if setting == START else "the tokenizer's padding token, or to null"
    )
    return HeadlabError(
        f"the configuration of {name} has {setting} {token_id}, but the model has tokens 0 to "
        f"{(vocabulary_size(config) or 1) - 1}; set {setting} in its config.json to {valid_values}",
        code="model.token_unknown",
    )
