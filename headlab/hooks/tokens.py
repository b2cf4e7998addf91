"""What a model is given beyond its tokenizer's output: for the specs of results, and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headlab.hooks.model import Model
from headlab.models import (
    INPUT_NAMES,
    SPACED_WORDS,
    TokenNeeds,
    family_of,
    lacks_padding_mask,
    token_needs,
)
from headlab.models.special_ids import pads_otherwise
from headlab.tasks import Example


def token_needs_of(model: Model, examples: Sequence[Example]) -> TokenNeeds:
    """What a model is given of labelled examples beyond its tokenizer's output."""
    lacks_mask = lacks_padding_mask(model.tokenizer)
    if any(example.choices for example in examples):
        return TokenNeeds()
    if any(example.target is not None for example in examples):
        # A language model has always been given its mask.
        has_decoder = bool(model.module.config.is_encoder_decoder)
        return TokenNeeds(attention_mask=lacks_mask and has_decoder)
    pairs = any(example.pair is not None for example in examples)
    if any(example.words for example in examples):
        return token_needs(
            model.missing_segment_ids, model.word_spaces, pairs=False, words=True, mask=lacks_mask
        )
    needs = token_needs(
        model.missing_segment_ids, "none", pairs=pairs, words=False, mask=lacks_mask
    )
    return replace(needs, padding=pads_otherwise(model.module, model.tokenizer))


def tokens_version(model: Model, examples: Sequence[Example]) -> dict[str, bool]:
    """What a spec's task says of the tokens of its examples; nothing for most models.

    Earlier versions of headlab gave a tokenizer's own output, so that their results, which do not
    say this, are of other tokens.
    """
    return token_needs_of(model, examples).version()


def tokens_note(model: Model, needs: TokenNeeds) -> str:
    """A caution where a model's files do not say with which tokens it was trained; else empty.

    Args:
        model: The model that is given the tokens.
        needs: What it is given beyond its tokenizer's output.
    """
    tokenizer_settings = model.tokenizer.init_kwargs
    transformers_version = str(getattr(model.module.config, "transformers_version", None) or "")
    # Tokenizers of transformers 3 and 4 gave segment ids: a model that one of them saved was trained
    # with these.
    notes = []
    if (
        needs.segments
        and INPUT_NAMES not in tokenizer_settings
        and not transformers_version.startswith(("3.", "4."))
    ):
        notes.append(
            f"the tokenizer of {model.name} gives no segment ids, so headlab adds those that "
            f"{family_of(model.module.config)} models are pretrained with; if this one was "
            f"fine-tuned without them, list what it takes as {INPUT_NAMES} in its "
            "tokenizer_config.json"
        )
    if needs.spaced_words and SPACED_WORDS not in tokenizer_settings:
        notes.append(
            f"the tokenizer of {model.name} has no add_prefix_space, so headlab puts a space "
            "before every word; if the model was fine-tuned on words without it, set "
            f"{SPACED_WORDS} to false in its tokenizer_config.json"
        )
    return "; ".join(notes)
