"""Translations under masks: greedy and beam search against slow ones.

They depend on neither batch, threads nor memory.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import greedy
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from support.translation_task import TASK, read_sentences

from headlab.evaluation import Decoding, Evaluator, generation, translated_bleu, translations
from headlab.hooks import gated
from headlab.masks import Mask


def new_evaluator(family: str = "marian", **fields: object) -> Evaluator:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    return replace(Evaluator(model, TASK, "aa-bb"), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return new_evaluator()


@pytest.fixture(scope="module")
def mask(evaluator: Evaluator) -> Mask:
    kept_heads = np.ones(evaluator.model.grid.size, bool)
    kept_heads[[0, 5, 9, 18]] = False
    return Mask(evaluator.model.grid, kept_heads)


def test_greedy_translations_are_those_of_passes_over_the_whole_text_so_far(
    evaluator: Evaluator, mask: Mask
):
    model = evaluator.model
    all_on = np.ones(mask.kept.shape, bool)
    for mask_or_none, kept_heads in ((None, all_on), (mask, mask.kept)):
        slow_translations = []
        for example in read_sentences():
            ids = model.tokenizer(example.text, return_tensors="pt")["input_ids"]
            limit = 2 * ids.shape[1] + 10
            with torch.no_grad(), gated(model, model.grid.gates(kept_heads)):
                tokens = greedy(model.module, ids, start=0, end=2, limit=limit)
            slow_translations.append(model.tokenizer.decode(tokens, skip_special_tokens=True))
        assert list(translations(evaluator, mask_or_none)) == slow_translations
    assert translations(evaluator) != translations(evaluator, mask)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_translation_depends_neither_on_its_neighbours_nor_on_threads_nor_on_memory(
    evaluator: Evaluator, mask: Mask, beams: int, monkeypatch: pytest.MonkeyPatch
):
    texts = translations(evaluator, mask, decoding=Decoding(beams))
    monkeypatch.setattr(generation, "ROWS", 3 * beams)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert translations(evaluator, mask, decoding=Decoding(beams)) == texts
    finally:
        torch.set_num_threads(threads)
    generate = type(evaluator.model.module).generate
    module = evaluator.model.module
    sizes_that_failed = []

    def generate_single_rows(*args: object, **kwargs: object) -> object:
        size = len(kwargs["input_ids"])  # type: ignore[arg-type]
        if size > 1:
            sizes_that_failed.append(size)
            raise torch.OutOfMemoryError
        return generate(module, *args, **kwargs)

    monkeypatch.setattr(module, "generate", generate_single_rows)
    assert translations(evaluator, mask, decoding=Decoding(beams)) == texts
    assert sizes_that_failed


def test_a_closed_head_is_a_head_whose_output_columns_are_zero(evaluator: Evaluator):
    grid = evaluator.model.grid
    zeroed_evaluator = new_evaluator()
    kept_heads = np.ones(grid.size, bool)
    for index, (row, head) in enumerate(grid.flat):
        if index % 3 == 0:
            kept_heads[index] = False
            weight = zeroed_evaluator.model.projections[row].weight
            width = weight.shape[1] // grid.heads.count(grid.heads[index]) // (4 if row < 2 else 3)
            with torch.no_grad():
                weight[:, head * width : (head + 1) * width] = 0
    texts = translations(evaluator, Mask(grid, kept_heads), decoding=Decoding(2))
    assert texts == translations(zeroed_evaluator, decoding=Decoding(2))


def test_beam_search_finds_the_likeliest_of_all_short_texts(monkeypatch: pytest.MonkeyPatch):
    """Texts of one token and the end: a beam for every token misses none of them.

    As all have the same length, the model's length penalty does not count.
    """
    monkeypatch.setattr(generation, "TOKENS_PER_SOURCE_TOKEN", 0)
    monkeypatch.setattr(generation, "EXTRA_TOKENS", 3)  # the start, a token, the end
    evaluator = new_evaluator()
    module = evaluator.model.module
    tokenizer = evaluator.model.tokenizer
    with torch.no_grad():
        module.final_logits_bias[0, :4] = -1e4
    evaluator.examples = evaluator.examples[:2]
    for example, text in zip(
        read_sentences(), translations(evaluator, decoding=Decoding(97)), strict=False
    ):
        ids = tokenizer(example.text, return_tensors="pt")["input_ids"].repeat(97, 1)
        pairs = torch.stack([torch.zeros(97, dtype=torch.long), torch.arange(97)], dim=1)
        with torch.no_grad():
            log_probabilities = module(input_ids=ids, decoder_input_ids=pairs).logits.log_softmax(
                -1
            )
        sums = log_probabilities[0, 0][:, None] + log_probabilities[:, 1]
        tokens = divmod(int(sums.argmax()), 97)
        assert text == tokenizer.decode(list(tokens), skip_special_tokens=True)


SETTINGS = {
    "num_return_sequences": 2,
    "return_dict_in_generate": True,
    "output_scores": True,
    "max_new_tokens": 3,
    "do_sample": True,
    "num_beams": 4,
    "max_time": 1e-9,
    "stop_strings": ["w5"],
    "cache_implementation": "static",
    "guidance_scale": 2.0,
    "prompt_lookup_num_tokens": 2,
}


@pytest.mark.parametrize("beams", [1, 2])
def test_the_model_s_own_settings_change_neither_search_nor_length(
    evaluator: Evaluator, beams: int, caplog: pytest.LogCaptureFixture
):
    texts = translations(evaluator, decoding=Decoding(beams))
    with_settings = new_evaluator()
    generation_config = with_settings.model.module.generation_config
    for name, value in SETTINGS.items():
        setattr(generation_config, name, value)
    assert translations(with_settings, decoding=Decoding(beams)) == texts
    assert not caplog.records
    # its settings of tokens are followed
    generation_config.bad_words_ids = [[word] for word in range(4, 90)]
    assert translations(with_settings, decoding=Decoding(beams)) != texts


def test_soft_gates_lie_between_open_and_closed(evaluator: Evaluator):
    ones = torch.ones(evaluator.model.grid.layers, evaluator.model.grid.width)
    assert translations(evaluator, ones) == translations(evaluator)
    assert translations(evaluator, ones * 0.1) != translations(evaluator)
    with raises("gate.not_one_mask"):
        translations(evaluator, ones[None])


def test_heads_may_be_replaced_by_their_mean(evaluator: Evaluator, mask: Mask):
    assert translations(evaluator, mask, ablation="mean") != translations(evaluator, mask)


def test_no_translation_is_longer_than_twice_its_source_and_ten(evaluator: Evaluator):
    endless = new_evaluator()
    with torch.no_grad():
        # neither the end nor another special token is likely
        endless.model.module.final_logits_bias[0, :4] = -1e4
    for example, text in zip(read_sentences(), translations(endless), strict=True):
        source = len(endless.model.tokenizer(example.text)["input_ids"])
        assert len(text.split()) == 2 * source + 10 - 1


def test_a_tick_may_stop_it_within_a_batch():
    class Stop(Exception):
        pass

    calls = []

    def tick() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise Stop

    with pytest.raises(Stop):
        translations(new_evaluator(tick=tick))


def test_bleu_is_that_of_the_translations(evaluator: Evaluator):
    texts = translations(evaluator)
    examples = [replace(e, target=text) for e, text in zip(read_sentences(), texts, strict=True)]
    task = replace(TASK, read=lambda *_: examples)
    bleu = translated_bleu(Evaluator(evaluator.model, task, "aa-bb"))
    assert bleu.score == pytest.approx(100)
    assert bleu.low < bleu.high == pytest.approx(100)
    assert translated_bleu(evaluator).score < 5


@pytest.mark.parametrize("family", ["mbart", "t5"])
def test_other_encoder_decoders_translate_too(family: str):
    evaluator = new_evaluator(family)
    kept_heads = np.ones(evaluator.model.grid.size, bool)
    kept_heads[::2] = False
    assert len(translations(evaluator, Mask(evaluator.model.grid, kept_heads))) == 5


def test_what_cannot_translate_is_refused_with_a_sentence(evaluator: Evaluator):
    classifier = Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx")
    with raises("model.not_translation"):
        translations(classifier)
    with raises("task.not_translation"):
        translated_bleu(classifier)
    with raises("beam.out_of_range", 1):
        translations(evaluator, decoding=Decoding(0))
