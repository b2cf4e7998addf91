"""What models of several tasks or languages are told, when their likelihood is asked for and when they translate."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from reference import greedy, log_probabilities
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_tokenizer
from transformers import NllbTokenizer

from headlab.evaluation import (
    NO_TARGET,
    Evaluator,
    LanguageSetup,
    language_setup,
    likelihood,
    translations,
)
from headlab.tasks import Example, Task

TEXTS = [("a b", "c"), ("b", "a c b"), ("c a", "b b")]
PREFIXES = {"translation_en_to_de": {"prefix": "w9 w8 "}, "summarization": {"prefix": "w7 "}}


def pair_task(language: str, prefix: str = "") -> Task:
    """Sources and targets with a prefix before both."""
    examples = []
    for number, (source, target) in enumerate(TEXTS):
        examples.append(Example(str(number), f"{prefix}{source}", target=f"{prefix}{target}"))
    return Task("made-up", (), (language,), False, lambda *_: examples)


@pytest.fixture(scope="module")
def nllb() -> Evaluator:
    """A model of several languages whose tokenizer puts their codes in front."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁a", "▁b", "▁c", "a", "b", "c"]
    tokenizer = NllbTokenizer(
        vocab={name: n for n, name in enumerate(names)},
        merges=[("▁", "a"), ("▁", "b"), ("▁", "c")],
        extra_special_tokens=["eng_Latn", "deu_Latn", "zho_Hans", "zho_Hant"],
    )
    model = tiny_model("mbart", tokenizer=tokenizer)
    return Evaluator(model, pair_task("eng-deu"), "eng-deu")


def test_codes_stand_before_sources_and_translations_and_are_not_asked_for(nllb: Evaluator):
    tokenizer = nllb.model.tokenizer
    language_before = tokenizer.src_lang
    english_code = tokenizer.convert_tokens_to_ids("eng_Latn")
    german_code = tokenizer.convert_tokens_to_ids("deu_Latn")
    inputs = nllb.tensors(np.arange(3))
    assert (inputs["input_ids"][:, 0] == english_code).all()
    assert (inputs["decoder_input_ids"][:, 1] == german_code).all()
    targets = nllb.inputs.targets(np.arange(3))
    assert (targets[:, 0] == NO_TARGET).all()
    # words, and the end
    assert (targets != NO_TARGET).sum(dim=1).tolist() == nllb.inputs.units.tolist() == [2, 4, 3]
    assert len(nllb.inputs.answers) == 9
    assert nllb.evaluate().n == 9
    assert tokenizer.src_lang == language_before


def test_log_probabilities_and_translations_are_of_a_model_that_knows_its_languages(
    nllb: Evaluator,
):
    tokenizer = nllb.model.tokenizer
    module = nllb.model.module
    english_code = tokenizer.convert_tokens_to_ids("eng_Latn")
    german_code = tokenizer.convert_tokens_to_ids("deu_Latn")
    start = module.config.decoder_start_token_id
    texts = []
    nats = []
    for source, target in TEXTS:
        source_ids = [english_code, *tokenizer(source)["input_ids"][1:]]
        target_ids = tokenizer(target)["input_ids"][1:]
        inputs = torch.tensor([source_ids])
        nats += log_probabilities(module, inputs, [start, german_code], target_ids)
        limit = 2 * len(source_ids) + 10
        translated_ids = greedy(
            module, inputs, start=start, end=2, limit=limit, first_token=german_code
        )
        texts.append(tokenizer.decode(translated_ids, skip_special_tokens=True).strip())
    assert list(translations(nllb)) == texts
    assert likelihood(nllb).nats == pytest.approx(np.array(nats), abs=1e-9)


def test_a_language_that_has_no_code_or_several_is_refused_with_what_there_is(nllb: Evaluator):
    config = nllb.model.module.config
    tokenizer = nllb.model.tokenizer
    with raises("translation.code_unknown", "no code", "'xx'", "eng_Latn, deu_Latn"):
        language_setup(config, tokenizer, "eng-xx")
    with raises("translation.code_ambiguous", "several codes", "'zho'", "zho_Hans, zho_Hant"):
        Evaluator(nllb.model, pair_task("eng-zho"), "eng-zho")
    assert language_setup(config, tokenizer, "eng-zho_Hant").target == "zho_Hant"
    tokenizer.legacy_behaviour = True
    try:
        with raises("translation.code_not_in_front", "deu_Latn"):
            language_setup(replace_type(config, "m2m_100"), tokenizer, "eng-deu")
        setup = language_setup(config, tokenizer, "eng-deu")
        assert setup.start_token == tokenizer.convert_tokens_to_ids("deu_Latn")
    finally:
        tokenizer.legacy_behaviour = False
        tokenizer.src_lang = str(tokenizer.src_lang)  # setting it sets the tokenizer up anew


def replace_type(config: object, name: str) -> object:
    return SimpleNamespace(**{**vars(config), "model_type": name})


def test_a_t5_reads_the_prefix_that_its_configuration_names():
    plain_model = tiny_model("t5", tokenizer=tiny_tokenizer())
    prefixed_model = tiny_model("t5", tokenizer=tiny_tokenizer())
    prefixed_model.module.config.task_specific_params = PREFIXES
    evaluator = Evaluator(prefixed_model, pair_task("en-de", "w5 "), "en-de")
    examples_by_hand = [
        replace(example, text=f"w9 w8 w5 {example.text}", target=f"w5 {example.target}")
        for example in pair_task("en-de").read("en-de", "dev", 0)
    ]
    task_by_hand = Task("made-up", (), ("en-de",), False, lambda *_: examples_by_hand)
    evaluator_by_hand = Evaluator(plain_model, task_by_hand, "en-de")
    assert translations(evaluator) == translations(evaluator_by_hand)
    assert (likelihood(evaluator).nats == likelihood(evaluator_by_hand).nats).all()
    with raises("translation.prefix_missing", "de", "en"):
        Evaluator(prefixed_model, pair_task("de-en"), "de-en")
    # texts of no pair get no prefix
    evaluator_of_one_language = Evaluator(prefixed_model, pair_task("en"), "en")
    assert evaluator_of_one_language.inputs.lengths.max() < evaluator.inputs.lengths.max()


def test_a_marian_model_of_several_targets_is_told_by_a_mark():
    config = SimpleNamespace(model_type="marian")
    marks = [">>fr<<", ">>zho_Hans<<", ">>zho_Hant<<"]
    tokenizer_of_several = SimpleNamespace(supported_language_codes=marks)
    assert language_setup(config, tokenizer_of_several, "en-fr") == LanguageSetup(prefix=">>fr<< ")
    assert language_setup(config, tokenizer_of_several, "en-fr-CA").prefix == ">>fr<< "
    with raises("translation.code_unknown", "no code", "'de'"):
        language_setup(config, tokenizer_of_several, "en-de")
    tokenizer_of_one = SimpleNamespace(supported_language_codes=[])
    assert language_setup(config, tokenizer_of_one, "en-de") == LanguageSetup()
    without_codes = SimpleNamespace(src_lang="a", tgt_lang="b", all_special_tokens=["</s>"])
    with raises("translation.codes_missing"):
        language_setup(config, without_codes, "en-de")
