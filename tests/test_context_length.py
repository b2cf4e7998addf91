"""How many tokens a model takes: what its configuration says, against what the model can run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers as hf
from support.expected_errors import raises
from support.likelihood_tasks import language_model
from support.tiny_models import DECODER, SEQ2SEQ, SMALL_OPTIONS, VOCAB, tiny_model
from support.tiny_task import tiny_tokenizer
from transformers import PreTrainedModel

from headlab.evaluation import (
    DEFAULT_CONTEXT,
    MAX_TOKENS,
    Evaluator,
    context_length,
    default_context,
    max_text_tokens,
    position_count,
)
from headlab.hooks import make_gateable
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.tasks import Example, Task
from headlab.training.steps import encode as encode_for_training

ENCODER = SMALL_OPTIONS | {"pad_token_id": 0}
LAYERS = {"vocab_size": VOCAB, "n_layers": 2, "n_heads": 4}


@dataclass(frozen=True)
class Family:
    """A family of models, with the length that the configuration of its tiny model states.

    Attributes:
        model: Name of the model's class.
        config: Name of the configuration's class.
        positions: Number of positions of the tiny model; None where nothing is stated.
        options: Arguments of the configuration.
        has_limit: Whether one more position is an error.
    """

    model: str
    config: str
    positions: int | None
    options: dict[str, Any] = field(default_factory=dict)
    has_limit: bool = True


FROM_ZERO = [
    Family("BertForSequenceClassification", "BertConfig", 64, ENCODER),
    Family(
        "GPT2LMHeadModel",
        "GPT2Config",
        40,
        {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 40},
    ),
    Family(
        "CTRLLMHeadModel",
        "CTRLConfig",
        40,
        {
            "vocab_size": VOCAB,
            "n_embd": 24,
            "n_layer": 2,
            "n_head": 4,
            "dff": 32,
            "n_positions": 40,
        },
    ),
    Family(
        "GPTJForCausalLM",
        "GPTJConfig",
        40,
        {
            "vocab_size": VOCAB,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "rotary_dim": 4,
            "n_positions": 40,
        },
    ),
    Family("MptForCausalLM", "MptConfig", 40, LAYERS | {"d_model": 32, "max_seq_len": 40}),
    Family(
        "LEDForConditionalGeneration",
        "LEDConfig",
        40,
        SEQ2SEQ
        | {
            "decoder_attention_heads": 4,
            "max_encoder_position_embeddings": 40,
            "max_decoder_position_embeddings": 24,
            "attention_window": 8,
        },
    ),
    Family("LlamaForCausalLM", "LlamaConfig", 64, DECODER, has_limit=False),
    Family(
        "FalconForCausalLM",
        "FalconConfig",
        64,
        DECODER | {"alibi": True, "num_kv_heads": 4},
        has_limit=False,
    ),
    Family(
        "OPTForCausalLM",
        "OPTConfig",
        64,
        {
            "vocab_size": VOCAB,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 32,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 24,
        },
    ),
]
# Their positions begin after that of the padding token.
AFTER_PADDING = [
    Family(
        f"{name}ForSequenceClassification",
        f"{name}Config",
        64 - padding - 1,
        SMALL_OPTIONS | {"pad_token_id": padding},
    )
    for name, padding in (
        ("Roberta", 1),
        ("XLMRoberta", 0),
        ("Camembert", 1),
        ("Data2VecText", 1),
        ("Esm", 1),
        ("IBert", 1),
        ("MPNet", 1),
        ("RobertaPreLayerNorm", 1),
    )
] + [
    Family(
        "LongformerForSequenceClassification",
        "LongformerConfig",
        62,
        SMALL_OPTIONS | {"pad_token_id": 1, "attention_window": [8, 8, 8]},
    ),
    Family(
        "XmodForSequenceClassification",
        "XmodConfig",
        62,
        SMALL_OPTIONS | {"pad_token_id": 1, "languages": ["en_XX"], "default_language": "en_XX"},
    ),
]
# Models whose configuration states nothing: relative positions and ALiBi.
WITHOUT_LENGTH = [
    Family(
        "BloomForCausalLM",
        "BloomConfig",
        None,
        {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4},
    ),
    Family(
        "T5ForConditionalGeneration",
        "T5Config",
        None,
        {
            "vocab_size": VOCAB,
            "d_model": 24,
            "d_kv": 6,
            "num_layers": 2,
            "num_heads": 4,
            "d_ff": 32,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
    ),
]


def module_of(family: Family) -> PreTrainedModel:
    """A tiny random model of a family."""
    with building_alone():
        torch.manual_seed(0)
        config = getattr(hf, family.config)(**family.options)
        module: PreTrainedModel = getattr(hf, family.model)(config)
    return module.eval()


def run_text(module: PreTrainedModel, tokens: int) -> None:
    """Pass a text of so many tokens through a model; an error of the model is not caught."""
    ids = torch.full((1, tokens), 7)
    targets = {"decoder_input_ids": ids[:, :2]} if module.config.is_encoder_decoder else {}
    with torch.no_grad():
        logits = module(input_ids=ids, attention_mask=torch.ones_like(ids), **targets).logits
    assert logits.isfinite().all()


@pytest.mark.parametrize("family", [*FROM_ZERO, *AFTER_PADDING], ids=lambda family: family.config)
def test_reported_04_positions_are_those_that_the_model_runs(family: Family):
    module = module_of(family)
    assert position_count(module) == family.positions
    run_text(module, family.positions or 0)
    if family.has_limit:
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            run_text(module, (family.positions or 0) + 1)


@pytest.mark.parametrize("family", WITHOUT_LENGTH, ids=lambda family: family.config)
def test_reported_04_without_a_stated_length_it_is_a_default_that_is_said(family: Family):
    model = make_gateable(Checkpoint("tiny", "test", "tiny", module_of(family), tiny_tokenizer()))
    assert position_count(model.module) is None
    default = MAX_TOKENS if model.module.config.is_encoder_decoder else DEFAULT_CONTEXT
    assert (context_length(model), max_text_tokens(model)) == (default, MAX_TOKENS)
    assert f"{default:,}" in default_context(model)
    run_text(model.module, 600)


def test_reported_04_a_length_below_1_is_none():
    """XLNet states -1."""
    config = hf.XLNetConfig(vocab_size=VOCAB, d_model=24, n_layer=2, n_head=4, d_inner=32)
    with building_alone():
        assert position_count(hf.XLNetLMHeadModel(config)) is None


def test_reported_04_the_tokenizer_says_it_where_the_configuration_does_not():
    model = tiny_model("bloom-lm", tokenizer=tiny_tokenizer())
    model.tokenizer.model_max_length = 900
    assert (context_length(model), default_context(model)) == (900, "")
    assert max_text_tokens(model) == MAX_TOKENS


def test_reported_04_the_configuration_counts_before_the_tokenizer():
    model = language_model("llama-lm")
    model.tokenizer.model_max_length = 20
    assert context_length(model) == 64


@pytest.mark.parametrize(
    "name", ["seq_length", "n_positions", "max_sequence_length", "n_ctx", "model_max_length"]
)
def test_reported_04_the_length_is_found_under_any_of_its_names(name: str):
    """As in BLOOM's and T5's config.json files: transformers keeps fields that it does not know."""
    model = tiny_model("bloom-lm", tokenizer=tiny_tokenizer())
    setattr(model.module.config, name, 300)
    assert (context_length(model), max_text_tokens(model)) == (300, 300)


def test_reported_04_a_model_of_several_kinds_of_input_says_it_of_its_text():
    vision = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
        "max_position_embeddings": 9,
    }
    config = hf.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **vision},
        text_config={"model_type": "llama", **DECODER},
        image_token_index=5,
    )
    with building_alone():
        module = hf.LlavaForConditionalGeneration(config)
    assert position_count(module) == DECODER["max_position_embeddings"]


def test_reported_04_each_side_of_two_models_has_its_own_length():
    led = module_of(FROM_ZERO[5])
    assert (position_count(led), position_count(led, targets=True)) == (40, 24)
    decoder_options = {
        "max_position_embeddings": 48,
        "is_decoder": True,
        "add_cross_attention": True,
    }
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(
        hf.BertConfig(**SMALL_OPTIONS), hf.BertConfig(**SMALL_OPTIONS | decoder_options)
    )
    with building_alone():
        module = hf.EncoderDecoderModel(config)
    assert (position_count(module), position_count(module, targets=True)) == (64, 48)


TEXTS = [
    Example("long", "w5 " * 90, 0),
    Example("short", "w6 w7", 1),
    Example("full", "w8 " * 38, 1),
]


@pytest.mark.parametrize("family", [FROM_ZERO[4], AFTER_PADDING[6]], ids=["MPT", "MPNet"])
def test_reported_04_sentences_are_cut_to_what_the_model_takes(family: Family):
    """Both failed when texts were cut to 512 and to 64 tokens."""
    classifier = "MptForSequenceClassification" if family.config == "MptConfig" else family.model
    labels = {"num_labels": 2, "id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    options = family.options | labels | {"pad_token_id": family.options.get("pad_token_id", 0)}
    module = module_of(Family(classifier, family.config, family.positions, options))
    model = make_gateable(Checkpoint("tiny", "test", "tiny", module, tiny_tokenizer()))
    task = Task("ab", ("a", "b"), ("xx",), False, lambda *_: TEXTS)
    evaluation = Evaluator(model, task, "xx").evaluate()
    assert evaluation.n == 3
    omissions = evaluation.omissions
    assert omissions is not None
    assert (omissions.examples_cut, omissions.token_limit) == (1, family.positions)


def test_reported_04_fine_tuning_is_held_to_the_same_positions():
    family = AFTER_PADDING[6]
    encoding = encode_for_training(tiny_tokenizer(), module_of(family), TEXTS, 512)
    assert max(encoding.lengths) == family.positions


def test_reported_04_texts_and_choices_may_be_as_long_as_the_model_takes():
    """They were cut to 512 tokens if the configuration had no length under the one name read."""
    model = tiny_model("bloom-lm", tokenizer=tiny_tokenizer())
    text = Example("long", "w4", target=" w5" * 700)
    choices = Example("long", "w5 " * 700, 0, choices=(" w6", " w7"))
    for example, likelihood in ((text, "tokens"), (choices, "choices")):
        task = Task(
            "made", (), ("xx",), False, lambda *_, example=example: [example], likelihood=likelihood
        )
        evaluator = Evaluator(model, task, "xx")
        assert default_context(model) in evaluator.inputs.note
        omissions = evaluator.evaluate().omissions
        assert omissions is not None
        assert (omissions.examples_cut, omissions.token_limit) == (0, DEFAULT_CONTEXT)
    too_long = Example("a", "w4", target=" w5" * 3000)
    task = Task("made", (), ("xx",), False, lambda *_: [too_long], likelihood="tokens")
    with raises("data.text_too_long", "a", "2,048"):
        Evaluator(model, task, "xx")


def test_reported_04_a_long_context_is_not_cut_at_2048():
    options = DECODER | {"max_position_embeddings": 4096}
    module = module_of(Family("LlamaForCausalLM", "LlamaConfig", 4096, options, has_limit=False))
    model = make_gateable(Checkpoint("tiny", "test", "tiny", module, tiny_tokenizer()))
    example = Example("long", "w5 " * 3000, 0, choices=(" w6", " w7 w8"))
    task = Task("made", (), ("xx",), False, lambda *_: [example], likelihood="choices")
    assert Evaluator(model, task, "xx").evaluate().n == 1
    assert json.dumps(Evaluator(model, task, "xx").omissions.to_json())
