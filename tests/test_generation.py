"""Translations under masks: greedy and beam search against slow ones, whatever the batch, the threads or the memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import greedy
from support.expected_errors import raises
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

from headlab.evaluation import Decoding, Evaluator, generation, translated_bleu, translations
from headlab.hooks import gated
from headlab.masks import Mask
from headlab.tasks import Example, Task


def rows(*_: object) -> list[Example]:
    rng = np.random.default_rng(3)
    sides = [
        [" ".join(f"w{w}" for w in rng.integers(4, 97, n)) for n in (1 + at % 3, 4)]
        for at in range(5)
    ]
    return [Example(str(row), source, target=target) for row, (source, target) in enumerate(sides)]


TASK = Task("made-up", (), ("aa-bb",), False, rows)


def made(family: str = "marian", **more: object) -> Evaluator:
    model = tiny_model(family, tokenizer=tiny_tokenizer())
    return replace(Evaluator(model, TASK, "aa-bb"), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return made()


@pytest.fixture(scope="module")
def mask(evaluator: Evaluator) -> Mask:
    kept = np.ones(evaluator.model.grid.size, bool)
    kept[[0, 5, 9, 18]] = False
    return Mask(evaluator.model.grid, kept)


def test_greedy_translations_are_those_of_passes_over_the_whole_text_so_far(
    evaluator: Evaluator, mask: Mask
):
    for gates in (None, mask):
        slow = []
        for example in rows():
            ids = evaluator.model.tokenizer(example.text, return_tensors="pt")["input_ids"]
            kept = np.ones(mask.kept.shape, bool) if gates is None else gates.kept
            with torch.no_grad(), gated(evaluator.model, evaluator.model.grid.gates(kept)):
                slow.append(
                    greedy(evaluator.model.module, ids, start=0, end=2, limit=2 * ids.shape[1] + 10)
                )
        found = translations(evaluator, gates)
        assert list(found) == [
            evaluator.model.tokenizer.decode(ids, skip_special_tokens=True) for ids in slow
        ]
    assert translations(evaluator) != translations(evaluator, mask)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_translation_depends_neither_on_its_neighbours_nor_on_threads_nor_on_memory(
    evaluator: Evaluator, mask: Mask, beams: int, monkeypatch: pytest.MonkeyPatch
):
    once = translations(evaluator, mask, decoding=Decoding(beams))
    monkeypatch.setattr(generation, "ROWS", 3 * beams)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert translations(evaluator, mask, decoding=Decoding(beams)) == once
    finally:
        torch.set_num_threads(before)
    generate = type(evaluator.model.module).generate
    module = evaluator.model.module
    failed = []

    def small(*given: object, **named: object) -> object:
        if len(named["input_ids"]) > 1:  # type: ignore[arg-type]
            failed.append(len(named["input_ids"]))  # type: ignore[arg-type]
            raise torch.OutOfMemoryError
        return generate(module, *given, **named)

    monkeypatch.setattr(module, "generate", small)
    assert translations(evaluator, mask, decoding=Decoding(beams)) == once
    assert failed


def test_a_closed_head_is_a_head_whose_output_columns_are_zero(evaluator: Evaluator):
    grid = evaluator.model.grid
    other = made()
    kept = np.ones(grid.size, bool)
    for flat, (row, head) in enumerate(grid.flat):
        if flat % 3 == 0:
            kept[flat] = False
            weight = other.model.projections[row].weight
            wide = weight.shape[1] // grid.heads.count(grid.heads[flat]) // (4 if row < 2 else 3)
            with torch.no_grad():
                weight[:, head * wide : (head + 1) * wide] = 0
    assert translations(evaluator, Mask(grid, kept), decoding=Decoding(2)) == translations(
        other, decoding=Decoding(2)
    )


def test_beam_search_finds_the_likeliest_of_all_short_texts(monkeypatch: pytest.MonkeyPatch):
    """One token and the end: with a beam for every token nothing is missed, and the model's length penalty is known."""
    monkeypatch.setattr(generation, "TOKENS_PER_SOURCE_TOKEN", 0)
    monkeypatch.setattr(generation, "EXTRA_TOKENS", 3)  # the start, a token, the end
    evaluator = made()
    module = evaluator.model.module
    tokenizer = evaluator.model.tokenizer
    with torch.no_grad():
        module.final_logits_bias[0, :4] = -1e4
    evaluator.examples = evaluator.examples[:2]
    for example, text in zip(rows(), translations(evaluator, decoding=Decoding(97)), strict=False):
        ids = tokenizer(example.text, return_tensors="pt")["input_ids"].repeat(97, 1)
        pairs = torch.stack([torch.zeros(97, dtype=torch.long), torch.arange(97)], dim=1)
        with torch.no_grad():
            found = module(input_ids=ids, decoder_input_ids=pairs).logits.log_softmax(-1)
        likely = int((found[0, 0][:, None] + found[:, 1]).argmax())
        assert text == tokenizer.decode([likely // 97, likely % 97], skip_special_tokens=True)


SETTINGS = {
    "num_return_sequences": 2, "return_dict_in_generate": True, "output_scores": True, "max_new_tokens": 3,
    "do_sample": True, "num_beams": 4, "max_time": 1e-9, "stop_strings": ["w5"], "cache_implementation": "static",
    "guidance_scale": 2.0, "prompt_lookup_num_tokens": 2,
}  # fmt: skip


@pytest.mark.parametrize("beams", [1, 2])
def test_the_model_s_own_settings_change_neither_search_nor_length(
    evaluator: Evaluator, beams: int, caplog: pytest.LogCaptureFixture
):
    plain = translations(evaluator, decoding=Decoding(beams))
    other = made()
    for name, value in SETTINGS.items():
        setattr(other.model.module.generation_config, name, value)
    assert translations(other, decoding=Decoding(beams)) == plain
    assert not caplog.records
    # of tokens, it has its say
    other.model.module.generation_config.bad_words_ids = [[word] for word in range(4, 90)]
    assert translations(other, decoding=Decoding(beams)) != plain


def test_soft_gates_lie_between_open_and_closed(evaluator: Evaluator):
    full = torch.ones(evaluator.model.grid.layers, evaluator.model.grid.width)
    assert translations(evaluator, full) == translations(evaluator)
    assert translations(evaluator, full * 0.1) != translations(evaluator)
    with raises("gate.not_one_mask"):
        translations(evaluator, full[None])


def test_heads_may_be_replaced_by_their_mean(evaluator: Evaluator, mask: Mask):
    assert translations(evaluator, mask, ablation="mean") != translations(evaluator, mask)


def test_no_translation_is_longer_than_twice_its_source_and_ten(evaluator: Evaluator):
    endless = made()
    with torch.no_grad():
        endless.model.module.final_logits_bias[
            0, :4
        ] = -1e4  # neither the end nor another special token is likely
    for example, text in zip(rows(), translations(endless), strict=True):
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
        translations(made(tick=tick))


def test_bleu_is_that_of_the_translations(evaluator: Evaluator):
    texts = translations(evaluator)
    copied = [replace(e, target=text) for e, text in zip(rows(), texts, strict=True)]
    found = translated_bleu(
        Evaluator(evaluator.model, replace(TASK, read=lambda *_: copied), "aa-bb")
    )
    assert found.score == pytest.approx(100)
    assert found.low < found.high == pytest.approx(100)
    assert translated_bleu(evaluator).score < 5


@pytest.mark.parametrize("family", ["mbart", "t5"])
def test_other_encoder_decoders_translate_too(family: str):
    other = made(family)
    kept = np.ones(other.model.grid.size, bool)
    kept[::2] = False
    assert len(translations(other, Mask(other.model.grid, kept))) == 5


def test_what_cannot_translate_is_refused_with_a_sentence(evaluator: Evaluator):
    classifier = Evaluator(tiny_model("bert", tokenizer=tiny_tokenizer()), tiny_task(), "xx")
    with raises("model.not_translation"):
        translations(classifier)
    with raises("task.not_translation"):
        translated_bleu(classifier)
    with raises("beam.out_of_range", 1):
        translations(evaluator, decoding=Decoding(0))
