"""Vocabularies cut to languages: covered texts are split as before, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from reference import bpe_parts
from support.cut_vocabularies import TOKENIZERS
from support.expected_errors import raises
from support.llama_cpp import ask_llama_cpp, greedy_continuation, with_llama_cpp
from support.shrunk_families import random_model
from support.tiny_llama import TEXTS, UNSEEN_TEXTS, tiny_llama
from support.tiny_models import SMALL_OPTIONS
from support.tiny_task import tiny_tokenizer
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from headlab.hooks import Model, make_gateable
from headlab.masks import full_mask
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.shrink import Shrunk, shrink_model, vocabulary
from headlab.shrink.gguf_file import write_gguf
from headlab.shrink.gguf_tokens import TokenizedModel, token_fields
from headlab.shrink.pieces import parts_of, rows_of
from headlab.shrink.read_pieces import read_pieces
from headlab.shrink.smaller_vocabulary import (
    covered_batches,
    cut_embeddings,
    renumbered_batch,
    with_vocabulary,
)
from headlab.shrink.vocabulary import (
    pieces_of_languages,
    scripts_of,
    words_of,
)
from headlab.shrink.vocabulary_cut import SmallerVocabulary, VocabularyCut
from headlab.shrink.vocabulary_texts import (
    TextsBySide,
    collect_texts,
    cut_by_texts,
    losses,
    sentences_of,
    texts_of,
)
from headlab.tasks import Example, Split, Task

CONTINUATION = 12
"""Tokens that a decoder goes on with."""


def tiny_model_with(tokenizer: Any) -> Model:
    """A tiny BERT with a row for every piece, and some more."""
    options = SMALL_OPTIONS | {"vocab_size": len(tokenizer) + 3, "pad_token_id": 0}
    with building_alone():
        torch.manual_seed(0)
        module = BertForSequenceClassification(BertConfig(**options)).eval()
    return make_gateable(Checkpoint("tiny", "test", "tiny-vocabulary", module, tokenizer))


def cut_to_text(model: Model, text: str) -> VocabularyCut:
    """The cut to a text and to what always stays."""
    pieces = read_pieces(model)
    kept_ids = {*pieces.always_kept(), *rows_of(model.tokenizer, [text])[0]}
    kept_ids |= pieces.on_the_way_to(kept_ids)
    size = model.module.get_input_embeddings().weight.shape[0]
    return VocabularyCut(("de",), {}, np.array(sorted(kept_ids)), size)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_covered_texts_are_split_as_before(kind):
    model = tiny_model_with(TOKENIZERS[kind]())
    german = TEXTS[1]
    cut = cut_to_text(model, german)
    smaller = read_pieces(model).cut_tokenizer(cut)
    assert 20 < len(cut.kept_ids) < len(model.tokenizer)
    words = german.split()
    rng = np.random.default_rng(0)
    covered_texts = 0
    for _ in range(200):
        text = " ".join(rng.permutation(words)[: rng.integers(1, 6)])
        (old_row,) = rows_of(model.tokenizer, [text])
        (new_row,) = rows_of(smaller, [text])
        expected_row = cut.new_ids[old_row]
        if (expected_row >= 0).all():
            covered_texts += 1
            assert new_row == expected_row.tolist(), text
        assert smaller.decode(new_row).strip() == model.tokenizer.decode(old_row).strip()
    assert covered_texts > 50


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_stock_transformers_reads_the_tokenizer(kind, tmp_path):
    model = tiny_model_with(TOKENIZERS[kind]())
    cut = cut_to_text(model, TEXTS[1])
    smaller = read_pieces(model).cut_tokenizer(cut)
    smaller.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert again(text)["input_ids"] == smaller(text)["input_ids"]
    assert again.special_tokens_map == model.tokenizer.special_tokens_map
    assert again.model_input_names == model.tokenizer.model_input_names
    special_ids = model.tokenizer(TEXTS[1])["input_ids"][:1]
    assert again(TEXTS[1])["input_ids"][:1] == cut.new_ids[special_ids].tolist()


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_decoder_gives_the_same_logits_for_pieces_that_stay(is_tied):
    model = tiny_llama(tie_word_embeddings=is_tied)
    cut = cut_to_text(model, TEXTS[0])
    inputs = model.tokenizer(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        logits = model.module(**inputs).logits[..., cut.kept_ids]
    parameters_before = sum(weight.numel() for weight in model.module.parameters())
    cut_embeddings(model.module, cut)
    with torch.inference_mode():
        new_logits = model.module(**renumbered_batch(inputs, cut)).logits
    torch.testing.assert_close(new_logits, logits, atol=1e-6, rtol=0)
    rows_gone = cut.size_before - len(cut.kept_ids)
    parameters_after = sum(weight.numel() for weight in model.module.parameters())
    assert parameters_before - parameters_after == rows_gone * 64 * (1 if is_tied else 2)
    config = model.module.config
    assert config.vocab_size == len(cut.kept_ids)
    assert config.eos_token_id == cut.new_ids[model.tokenizer.eos_token_id]


@pytest.mark.parametrize(
    "family", ["bert", "xlm-roberta", "electra", "distilbert", "t5", "gpt2", "marian", "mbart"]
)
def test_models_of_many_families_lose_rows_and_nothing_else(family):
    model = random_model(family, tiny_tokenizer(), dtype=torch.float32)
    kept_ids = np.array([*range(20), 40, 41, 60, 96])
    cut = VocabularyCut(("xx",), {}, kept_ids, 97)
    rng = np.random.default_rng(0)
    ids = torch.from_numpy(rng.choice(kept_ids[4:], (3, 8)))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.module.config.is_encoder_decoder:
        batch["decoder_input_ids"] = ids
    with torch.inference_mode():
        logits = model.module(**batch)[0]
    cut_embeddings(model.module, cut)
    with torch.inference_mode():
        new_logits = model.module(**renumbered_batch(batch, cut))[0]
    expected = logits[..., kept_ids] if logits.shape[-1] == 97 else logits
    torch.testing.assert_close(new_logits, expected, atol=1e-5, rtol=0)


def test_pieces_on_the_way_are_those_of_the_merges():
    model = tiny_llama()
    pieces = read_pieces(model)
    merges = [tuple(merge) for merge in pieces.description["model"]["merges"]]
    ranks = {merge: rank for rank, merge in enumerate(merges)}
    for piece in list(pieces.piece_by_id.values())[-80:]:
        assert parts_of(piece, ranks) == bpe_parts(piece, merges)


@pytest.mark.parametrize("kind", ["unigram", "bytes"])
def test_words_stay_in_three_forms(kind, monkeypatch):
    model = tiny_model_with(TOKENIZERS[kind]())
    monkeypatch.setattr(vocabulary, "words_of", lambda language: ["großen", "brown"])
    cut = pieces_of_languages(model, ["xx"]).cut_with([])
    assert cut.sources == {"xx": "wordfreq"}
    smaller = read_pieces(model).cut_tokenizer(cut)
    for word in ("großen", "Großen", "GROSSEN", "brown", "Brown", "BROWN", "x großen brown"):
        (row,) = rows_of(model.tokenizer, [word])
        assert cut.new_ids[row].tolist() == rows_of(smaller, [word])[0]
    (row,) = rows_of(model.tokenizer, [" chmurność"])
    assert not cut.is_kept[row].all()


def test_words_are_those_of_the_package():
    words = words_of("vi")
    assert words is not None
    assert {"không", "của"} <= set(words)
    assert words_of("vi-VN") == words_of("vie_Latn") == words_of("VI") == words
    assert words_of("hr") == words_of("bs")
    assert words_of("vi-Cyrl") is None
    assert words_of("th") is None
    assert words_of("zh-TW") is None  # the package writes Chinese in simplified characters


def test_a_language_without_words_keeps_its_script():
    assert scripts_of("th") == ("Thai",)
    assert scripts_of("lo") == ("Laoo",)
    assert scripts_of("ja") == ("Hani", "Hira", "Kana")
    assert scripts_of("sr-Latn") == ("Latn",)
    model = tiny_model_with(TOKENIZERS["unigram"]())
    cut = pieces_of_languages(model, ["th"]).cut_with([])
    assert cut.sources == {"th": "script Thai"}
    (row,) = rows_of(model.tokenizer, [TEXTS[5].split()[0]])
    assert cut.is_kept[row].all()
    (polish_row,) = rows_of(model.tokenizer, [TEXTS[2]])
    assert not cut.is_kept[polish_row].all()
    for unknown in ("xx", "xx-private", "qq", "german", "portuguese", "und"):
        assert words_of(unknown) is None
        with raises("vocabulary.language_unknown", unknown):
            scripts_of(unknown)


def test_a_pair_is_two_languages(monkeypatch):
    model = tiny_model_with(TOKENIZERS["unigram"]())
    monkeypatch.setattr(vocabulary, "words_of", lambda language: None)
    cut = pieces_of_languages(model, ["en-th"]).cut_with([])
    assert cut.sources == {"en": "script Latn", "th": "script Thai"}


def test_losses_are_counted():
    model = tiny_model_with(TOKENIZERS["unigram"]())
    cut = cut_to_text(model, TEXTS[1])
    smaller = read_pieces(model).cut_tokenizer(cut)
    assert losses(model, cut, smaller, TextsBySide([TEXTS[1]])) == {
        "pieces_lost": 0,
        "texts_changed": 0,
        "texts": 1,
    }
    of_both = losses(model, cut, smaller, TextsBySide([TEXTS[1], TEXTS[2]]))
    rows = rows_of(model.tokenizer, [TEXTS[1], TEXTS[2]])
    lost = sum(not cut.is_kept[number] for row in rows for number in row)
    assert of_both["pieces_lost"] == pytest.approx(lost / sum(map(len, rows)))
    assert of_both["texts_changed"] == 0.5


def test_a_covered_text_that_is_split_otherwise_is_an_error():
    model = tiny_model_with(TOKENIZERS["unigram"]())
    cut = cut_to_text(model, TEXTS[1])
    smaller = read_pieces(model).cut_tokenizer(cut)
    kept_ids = cut.kept_ids.copy()
    kept_ids[[-1, -2]] = kept_ids[[-2, -1]]  # two pieces have each other's number
    swapped_cut = VocabularyCut(cut.languages, cut.sources, kept_ids, cut.size_before)
    piece = model.tokenizer.convert_ids_to_tokens(int(kept_ids[-2]))
    with raises("vocabulary.segmentation_differs"):
        losses(model, swapped_cut, smaller, TextsBySide([piece.replace("▁", " "), TEXTS[1]]))


def of_language(texts_by_split: dict[str, dict[str, list[str]]]) -> Task:
    """A task without labels of some texts by language and split."""

    def read(language: str, split: Split, seed: int) -> list[Example]:
        texts = texts_by_split[language].get(split, [])
        return [Example(f"{split}-{number}", text) for number, text in enumerate(texts)]

    return Task("texts of a test", (), tuple(texts_by_split), aligned=False, read=read)


def test_test_texts_are_held_out_and_the_folder_is_kept(tmp_path):
    task = of_language({"de": {"train": ["a"], "dev": ["b"], "test": ["c"]}})
    (tmp_path / "de.txt").write_text("d\n\n  \ne\n")
    texts = collect_texts(task, ["de"], tmp_path)
    assert texts.kept == {"de": TextsBySide(["a", "b", "d", "e"])}
    assert texts.held_out == {"de": TextsBySide(["c"])}
    assert texts.kept_once_counted == {"de": TextsBySide()}


def test_each_tenth_line_is_held_out_where_the_task_has_no_test(tmp_path):
    lines = [f"line {number}" for number in range(25)]
    (tmp_path / "sw.txt").write_text("\n".join(lines))
    texts = collect_texts(of_language({"de": {"test": ["c"]}}), ["de", "sw"], tmp_path)
    assert texts.held_out["sw"].sources == ["line 0", "line 10", "line 20"]
    assert texts.kept_once_counted == {"de": TextsBySide(), "sw": texts.held_out["sw"]}
    assert sorted((texts.kept["sw"] + texts.held_out["sw"]).sources) == sorted(lines)
    assert texts.held_out["de"].sources == ["c"]
    sentences = sentences_of(texts, 5)
    assert sentences.languages == ("sw",)
    assert len(sentences.examples("sw")) == 5
    assert {example.text for example in sentences.examples("sw")} <= set(lines)


def test_lines_that_were_held_out_stay_in_the_end(tmp_path):
    model = tiny_model_with(TOKENIZERS["unigram"]())
    (tmp_path / "th.txt").write_text(f"{TEXTS[2]}\n{TEXTS[5]}\n")
    texts = collect_texts(of_language({}), ["th"], tmp_path)
    assert texts.held_out == {"th": TextsBySide([TEXTS[2]])}
    smaller = cut_by_texts(model, ["th"], texts)
    assert smaller.held_out["th"]["texts"] == 1
    assert smaller.held_out["th"]["texts_changed"] == 1
    (polish_row,) = rows_of(model.tokenizer, [TEXTS[2]])
    assert smaller.cut.is_kept[polish_row].all()
    assert smaller.record()["pieces_after"] == len(smaller.tokenizer)


def test_a_language_without_texts_is_refused(tmp_path):
    task = of_language({"de": {"train": ["a"], "test": ["c"]}})
    with raises("vocabulary.texts_missing", "sw", "sw.txt", "--texts"):
        collect_texts(task, ["de", "sw"], None)
    (tmp_path / "sw.txt").write_text("\n \n")
    with raises("vocabulary.texts_missing", tmp_path):
        collect_texts(task, ["sw"], tmp_path)
    with raises("vocabulary.texts_not_a_folder", "de.txt"):
        collect_texts(task, ["de"], tmp_path / "nowhere")
    (tmp_path / "de.txt").write_bytes(b"\xff\xfe\xfa")
    with raises("data.not_utf8"):
        collect_texts(task, ["de"], tmp_path)


@with_llama_cpp
@pytest.mark.parametrize("kind", ["bytes", "sentencepiece"])
def test_llama_cpp_reads_a_smaller_vocabulary(kind, tmp_path):
    pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")
    model = tiny_llama(TOKENIZERS[kind]())
    cut = cut_to_text(model, TEXTS[1])
    smaller = read_pieces(model).cut_tokenizer(cut)
    shrunk = replace(shrink_model(model, full_mask(model.grid)), form="gguf")
    shrunk = with_vocabulary(shrunk, SmallerVocabulary(cut, smaller))
    fields = token_fields(TokenizedModel("tiny", smaller, shrunk.module))
    write_gguf(model, shrunk, tmp_path / "model.gguf", "float32", fields)
    prompt = smaller(TEXTS[1])["input_ids"]
    answer = ask_llama_cpp(
        tmp_path / "model.gguf", tmp_path, UNSEEN_TEXTS, [prompt], count=CONTINUATION
    )
    for text, tokens in zip(UNSEEN_TEXTS, answer.tokens, strict=True):
        assert tokens == smaller(text)["input_ids"], text
    expected_tokens = greedy_continuation(made_of(shrunk), None, prompt, CONTINUATION)
    assert len(expected_tokens) > 2
    assert answer.continuations[0][: len(expected_tokens)] == expected_tokens


def made_of(shrunk: Shrunk) -> Model:
    """A smaller model with the tokenizer of its vocabulary."""
    assert shrunk.vocabulary is not None
    return make_gateable(
        Checkpoint("smaller", "test", "smaller", shrunk.module, shrunk.vocabulary.tokenizer)
    )


def test_words_that_are_given_one_by_one_stay(tmp_path):
    example = Example("a", "", words=("Boxkämpfer", "jagen"), labels=(0, 1))

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return [example]

    texts = collect_texts(Task("words", (), ("de",), aligned=False, read=read), ["de"], None)
    assert texts.kept["de"].sources == ["Boxkämpfer jagen"] * 2
    assert texts.words == ["Boxkämpfer", " Boxkämpfer", "jagen", " jagen"]


def test_targets_are_translations_or_go_on():
    example = Example("a", "one", target=" two")

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return [example]

    translation = Task("mt", (), ("de",), aligned=False, read=read)
    assert texts_of([example], translation) == TextsBySide(["one"], [" two"])
    assert texts_of([example], replace(translation, likelihood="tokens")) == TextsBySide(
        ["one two"]
    )


def test_ids_that_the_settings_name_stay_and_are_renumbered():
    model = tiny_llama()
    config = model.module.config
    named_ids = [350, 360]  # ordinary pieces
    config.eos_token_id = named_ids
    model.module.generation_config.bad_words_ids = [[350], [351, 352]]
    cut = pieces_of_languages(model, ["th"]).cut_with([])
    assert cut.is_kept[named_ids].all()
    cut_embeddings(model.module, cut)
    assert config.eos_token_id == cut.new_ids[named_ids].tolist()
    kept_words = model.module.generation_config.bad_words_ids
    assert kept_words[0] == [cut.new_ids[350]]


def test_tokens_without_an_embedding_are_refused():
    model = tiny_llama()
    model.module.resize_token_embeddings(390)
    with raises("vocabulary.tokenizer_unknown", 390):
        read_pieces(model)


def test_a_tokenizer_whose_numbers_would_shift_is_an_error():
    model = tiny_model_with(TOKENIZERS["unigram"]())
    last_id = max(model.tokenizer.get_vocab().values())  # <mask>, behind all pieces
    kept_ids = np.array([0, 1, 2, 3, 10, last_id - 1, last_id + 1])  # a row without a token
    size = model.module.get_input_embeddings().weight.shape[0]
    kept = VocabularyCut(("de",), {}, np.sort(np.append(kept_ids, last_id)), size)
    assert read_pieces(model).cut_tokenizer(kept).get_vocab()["<mask>"] == 6
    shifted_ids = np.sort(np.append(kept_ids, last_id))
    shifted = VocabularyCut(("de",), {}, np.roll(shifted_ids, 1), size)
    with raises("vocabulary.numbers_differ"):
        read_pieces(model).cut_tokenizer(shifted)


def test_examples_without_a_covered_one_are_refused():
    cut = VocabularyCut(("de",), {}, np.arange(5), 10)
    batch = {"input_ids": torch.tensor([[1, 7], [8, 2]])}
    with raises("vocabulary.nothing_covered", "--texts"):
        covered_batches([batch], cut)
    assert covered_batches([batch | {"input_ids": torch.tensor([[1, 2], [8, 2]])}], cut)[0][
        "input_ids"
    ].tolist() == [[1, 2]]


def test_a_vocabulary_that_needs_all_its_pieces_is_refused():
    model = tiny_llama()
    size = model.module.config.vocab_size
    cut = VocabularyCut(("de",), {}, np.arange(size), size)
    with raises("vocabulary.nothing_to_cut", "de"):
        cut_embeddings(model.module, cut)


def test_unknown_tokenizers_are_refused():
    model = random_model("bert", tiny_tokenizer(), dtype=torch.float32)
    with raises("vocabulary.tokenizer_unknown", "WordLevel", "--vocabulary keep"):
        read_pieces(model)
