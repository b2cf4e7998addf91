"""What models of several tasks or languages are told: in the texts they are asked for, and in those they write."""

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


def pair_task(language: str, words: str = "") -> Task:
    sides = [(f"{words}{a}", f"{words}{b}") for a, b in TEXTS]
    rows = [Example(str(n), a, target=b) for n, (a, b) in enumerate(sides)]
    return Task("made-up", (), (language,), False, lambda *_: rows)


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
    language_before = nllb.model.tokenizer.src_lang
    source, target = (tokenizer.convert_tokens_to_ids(code) for code in ("eng_Latn", "deu_Latn"))
    inputs = nllb.tensors(np.arange(3))
    assert (inputs["input_ids"][:, 0] == source).all()
    assert (inputs["decoder_input_ids"][:, 1] == target).all()
    targets = nllb.inputs.targets(np.arange(3))
    assert (targets[:, 0] == NO_TARGET).all()
    # words, and the end
    assert (targets != NO_TARGET).sum(dim=1).tolist() == nllb.inputs.units.tolist() == [2, 4, 3]
    assert len(nllb.inputs.answers) == 9
    assert nllb.evaluate().n == 9
    assert tokenizer.src_lang == language_before


def test_accuracy_log_probability_and_translation_are_of_one_model_that_was_told(nllb: Evaluator):
    tokenizer = nllb.model.tokenizer
    module = nllb.model.module
    code = tokenizer.convert_tokens_to_ids("deu_Latn")
    begin = module.config.decoder_start_token_id
    texts = []
    nats = []
    for source, target in TEXTS:
        ids = torch.tensor(
            [[tokenizer.convert_tokens_to_ids("eng_Latn"), *tokenizer(source)["input_ids"][1:]]]
        )
        body = tokenizer(target)["input_ids"][1:]
        nats += log_probabilities(module, ids, [begin, code], body)
        translated_ids = greedy(
            module, ids, start=begin, end=2, limit=2 * ids.shape[1] + 10, first=code
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
        assert language_setup(
            config, tokenizer, "eng-deu"
        ).start_token == tokenizer.convert_tokens_to_ids("deu_Latn")
    finally:
        tokenizer.legacy_behaviour = False
        tokenizer.src_lang = str(tokenizer.src_lang)  # which sets it up anew


def replace_type(config: object, name: str) -> object:
    return SimpleNamespace(**{**vars(config), "model_type": name})


def test_a_t5_reads_the_prefix_that_its_configuration_names():
    plain_model, prefixed_model = (tiny_model("t5", tokenizer=tiny_tokenizer()) for _ in range(2))
    prefixed_model.module.config.task_specific_params = PREFIXES
    evaluator = Evaluator(prefixed_model, pair_task("en-de", "w5 "), "en-de")
    examples = pair_task("en-de").read("en-de", "dev", 0)
    examples = [replace(e, text=f"w9 w8 w5 {e.text}", target=f"w5 {e.target}") for e in examples]
    evaluator_by_hand = Evaluator(
        plain_model, Task("made-up", (), ("en-de",), False, lambda *_: examples), "en-de"
    )
    assert translations(evaluator) == translations(evaluator_by_hand)
    assert (likelihood(evaluator).nats == likelihood(evaluator_by_hand).nats).all()
    with raises("translation.prefix_missing", "de", "en"):
        Evaluator(prefixed_model, pair_task("de-en"), "de-en")
    # no pair: as it is
    assert (
        Evaluator(prefixed_model, pair_task("en"), "en").inputs.lengths.max()
        < evaluator.inputs.lengths.max()
    )


def test_a_marian_model_of_several_targets_is_told_by_a_mark():
    config = SimpleNamespace(model_type="marian")
    tokenizer_of_several = SimpleNamespace(
        supported_language_codes=[">>fr<<", ">>zho_Hans<<", ">>zho_Hant<<"]
    )
    assert language_setup(config, tokenizer_of_several, "en-fr") == LanguageSetup(prefix=">>fr<< ")
    assert language_setup(config, tokenizer_of_several, "en-fr-CA").prefix == ">>fr<< "
    with raises("translation.code_unknown", "no code", "'de'"):
        language_setup(config, tokenizer_of_several, "en-de")
    assert (
        language_setup(config, SimpleNamespace(supported_language_codes=[]), "en-de")
        == LanguageSetup()
    )
    unknown = SimpleNamespace(src_lang="a", tgt_lang="b", all_special_tokens=["</s>"])
    with raises("translation.codes_missing"):
        language_setup(config, unknown, "en-de")
