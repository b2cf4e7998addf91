"""Marian's vocabularies cut to a pair of languages: each side splits its texts as before."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.exports import export
from support.saved_models import save_model
from support.tiny_marian import (
    ALONE,
    MARKS,
    WITHOUT_ID,
    marian_tokenizer,
    piece_model,
    piece_model_of,
    sentences,
    tiny_marian,
    translation_folder,
)
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianTokenizer

import headlab
from headlab.hooks import Model, gated_in_this_thread
from headlab.masks import Mask
from headlab.models.checkpoint import building_alone
from headlab.shrink import vocabulary
from headlab.shrink.pieces import rows_of
from headlab.shrink.read_pieces import read_pieces
from headlab.shrink.smaller_vocabulary import cut_embeddings, renumbered_batch
from headlab.shrink.vocabulary import pieces_of_languages
from headlab.shrink.vocabulary_cut import SmallerVocabulary, VocabularyCut
from headlab.shrink.vocabulary_texts import (
    CutTexts,
    TextsBySide,
    collect_texts,
    cut_by_texts,
    losses,
)
from headlab.tasks import Example, Split, Task
from headlab.tasks.translation import translation_task

BOTH = ("en", "th", "de", "ru")
PIECE_MODELS: dict[str, Callable[[], tuple[bytes, bytes]]] = {
    "two": lambda: (piece_model(("en", "th")), piece_model(("de", "ru"))),
    "joint": lambda: (piece_model(BOTH, size=1000),) * 2,
    "bpe": lambda: (piece_model(("en", "th"), "bpe"), piece_model(("de", "ru"), "bpe")),
    "mixed": lambda: (piece_model(("en", "th"), "bpe"), piece_model(("de", "ru"))),
}
GREEDILY: dict[str, Any] = {"num_beams": 1, "no_repeat_ngram_size": 1}
"""Translations of a random model repeat one piece otherwise."""
LOST_TEXTS = (
    "dim the lights 😀👩‍👩‍👧",
    "ᚠᛇᚻ ꦗꦮ 𒀀 𝔘𝔫𝔦",
    "Lamp日本語العربيةไทย123abc",
    "กรุณาเปิดไฟ and dim the lights",
    "e\u0301 \u00a0 \u200b",
)


@pytest.fixture(autouse=True)
def few_words(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of no language stay, so that the tiny vocabularies lose something."""
    if "all_words" not in request.fixturenames:
        monkeypatch.setattr(vocabulary, "words_of", lambda language: [])


@pytest.fixture
def all_words() -> None:
    """The words are those of wordfreq."""


@pytest.fixture(params=PIECE_MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    """A model of each kind of tokenizer."""
    return tiny_marian(marian_tokenizer(tmp_path, *PIECE_MODELS[request.param]()))


@pytest.fixture
def two_sided(tmp_path: Path) -> Model:
    """A model with a SentencePiece model for each side."""
    return tiny_marian(marian_tokenizer(tmp_path, *PIECE_MODELS["two"]()))


def pair_texts(count: int = 120) -> CutTexts:
    """English sources and German targets; later ones are held out."""
    english, german = list(sentences("en")), list(sentences("de"))
    return CutTexts(
        {"en-de": TextsBySide(english[:count], german[:count])},
        {"en-de": TextsBySide(english[count:], german[count:])},
        {"en-de": TextsBySide()},
        [],
    )


def cut_to_pair(model: Model) -> SmallerVocabulary:
    return cut_by_texts(model, ["en-de"], pair_texts())


def mixed_texts(texts: list[str]) -> list[str]:
    """Their words in other orders, which are covered in part."""
    words = " ".join(texts).split()
    rng = np.random.default_rng(0)
    return [" ".join(rng.permutation(words)[: rng.integers(1, 6)]) for _ in range(300)]


@pytest.mark.parametrize("side", ["source", "target"])
def test_each_side_splits_covered_texts_as_before(model, side):
    smaller = cut_to_pair(model)
    cut = smaller.cut
    assert 100 < len(cut.kept_ids) < 0.8 * cut.size_before
    texts = mixed_texts(list(sentences("en" if side == "source" else "de")))
    old_rows = rows_of(model.tokenizer, texts, side)
    new_rows = rows_of(smaller.tokenizer, texts, side)
    covered_texts = 0
    for text, old_row, new_row in zip(texts, old_rows, new_rows, strict=True):
        expected_row = cut.new_ids[old_row]
        if (expected_row >= 0).all():
            covered_texts += 1
            assert new_row == expected_row.tolist(), text
    assert 50 < covered_texts < len(texts)


def test_ids_are_mapped_one_to_one_and_name_the_same_tokens(model):
    smaller = cut_to_pair(model)
    old_tokens = {number: token for token, number in model.tokenizer.get_vocab().items()}
    new_tokens = {number: token for token, number in smaller.tokenizer.get_vocab().items()}
    # Rows that belong to no token go.
    assert sorted(new_tokens) == list(range(len(smaller.cut.kept_ids)))
    for new_id, old_id in enumerate(smaller.cut.kept_ids.tolist()):
        assert new_tokens[new_id] == old_tokens[old_id]
    for name in ("pad", "eos", "unk"):
        old_id = getattr(model.tokenizer, f"{name}_token_id")
        assert getattr(smaller.tokenizer, f"{name}_token_id") == smaller.cut.new_ids[old_id]
    for token in (*MARKS, ALONE, "@@"):
        assert token in smaller.tokenizer.get_vocab()
    assert smaller.tokenizer.supported_language_codes == list(MARKS)


def test_pieces_stay_on_the_side_of_their_language(two_sided, monkeypatch):
    monkeypatch.setattr(vocabulary, "words_of", lambda language: {"en": ["kitchen"]}.get(language))
    pieces = pieces_of_languages(two_sided, ["en-ru"])
    assert pieces.sources == {"en": "wordfreq", "ru": "script Cyrl"}
    cut = pieces.cut_with([])
    for word in ("kitchen", "Kitchen", "KITCHEN"):
        assert cut.is_kept[rows_of(two_sided.tokenizer, [word])[0]].all()
    assert cut.is_kept[
        rows_of(two_sided.tokenizer, [sentences("ru")[0].split()[0]], "target")
    ].all()
    reversed_cut = pieces_of_languages(two_sided, ["ru-en"]).cut_with([])
    assert not reversed_cut.is_kept[rows_of(two_sided.tokenizer, ["kitchen"])[0]].all()


def test_words_are_kept_on_both_sides(two_sided, all_words):
    pieces = pieces_of_languages(two_sided, ["en-de"])
    assert pieces.sources == {"en": "wordfreq", "de": "wordfreq"}
    cut = pieces.cut_with([])
    held_out = TextsBySide(list(sentences("en", "test")), list(sentences("de", "test")))
    lost = losses(two_sided, cut, read_pieces(two_sided).cut_tokenizer(cut), held_out)
    assert lost["pieces_lost"] < 0.05
    assert len(cut.kept_ids) < cut.size_before


def test_logits_of_covered_texts_are_those_of_the_original(model):
    cut = cut_to_pair(model).cut
    texts = pair_texts().kept["en-de"]
    inputs = dict(model.tokenizer(texts.sources[:20], padding=True, return_tensors="pt"))
    targets = model.tokenizer(text_target=texts.targets[:20], padding=True, return_tensors="pt")
    inputs["decoder_input_ids"] = targets["input_ids"]
    with torch.inference_mode():
        logits = model.module(**inputs).logits[..., cut.kept_ids]
    cut_embeddings(model.module, cut)
    with torch.inference_mode():
        new_logits = model.module(**renumbered_batch(inputs, cut)).logits
    torch.testing.assert_close(new_logits, logits, atol=1e-5, rtol=0)


def test_settings_that_name_tokens_are_renumbered(two_sided):
    cut = cut_to_pair(two_sided).cut
    module = two_sided.module
    old_padding, old_end = module.config.pad_token_id, module.config.eos_token_id
    assert not cut.is_kept[[2, 3]].all()
    cut_embeddings(module, cut)
    rows = len(cut.kept_ids)
    assert module.config.vocab_size == module.config.decoder_vocab_size == rows
    assert module.final_logits_bias.shape == (1, rows)
    assert module.lm_head.weight is module.model.encoder.embed_tokens.weight
    for settings in (module.config, module.generation_config):
        assert settings.pad_token_id == settings.decoder_start_token_id == cut.new_ids[old_padding]
        assert settings.eos_token_id == settings.forced_eos_token_id == cut.new_ids[old_end]
    assert module.generation_config.bad_words_ids == [[cut.new_ids[old_padding]]]


def test_what_was_not_covered_is_counted(model):
    smaller = cut_to_pair(model)
    for texts in (TextsBySide(sources=list(LOST_TEXTS)), TextsBySide(targets=list(LOST_TEXTS))):
        rows = texts.rows(model.tokenizer)
        lost = sum(not smaller.cut.is_kept[number] for row in rows for number in row)
        counted = losses(model, smaller.cut, smaller.tokenizer, texts)
        assert counted["pieces_lost"] == pytest.approx(lost / sum(map(len, rows)))
        assert counted["texts"] == len(LOST_TEXTS)
    thai = losses(model, smaller.cut, smaller.tokenizer, TextsBySide(list(sentences("th"))))
    assert thai["pieces_lost"] > 0.02
    assert thai["texts_changed"] > 0.1
    held_out = smaller.held_out["en-de"]
    assert 0 < held_out["pieces_lost"] < held_out["texts_changed"] < 1
    assert held_out["texts"] == len(pair_texts().held_out["en-de"])


def test_a_covered_target_that_is_split_otherwise_is_an_error(two_sided):
    smaller = cut_to_pair(two_sided)
    smaller.tokenizer.spm_target = smaller.tokenizer.spm_source
    with raises("vocabulary.segmentation_differs"):
        losses(two_sided, smaller.cut, smaller.tokenizer, pair_texts().kept["en-de"])


def test_a_piece_without_an_id_stays_unknown(two_sided):
    """If it left the SentencePiece model, its characters would be other tokens."""
    text = "dim the lights"
    smaller = cut_to_pair(two_sided)
    tokenizer = two_sided.tokenizer
    assert WITHOUT_ID in tokenizer.spm_source.encode(text, out_type=str)
    (old_row,) = rows_of(tokenizer, [text])
    (new_row,) = rows_of(smaller.tokenizer, [text])
    assert old_row[-1] == tokenizer.unk_token_id
    assert new_row == smaller.cut.new_ids[old_row].tolist()


def test_the_unlikeliest_piece_stays_as_it_sets_the_cost_of_unknown_characters(tmp_path):
    score_by_piece = {"▁": -1.0, "Жb": -20.0, "bc": -1.0, "c": -20.0, "zz": -40.0}
    source = piece_model_of(score_by_piece)
    model = tiny_marian(marian_tokenizer(tmp_path, source, source))
    pieces = read_pieces(model)
    ids = model.tokenizer.get_vocab()
    assert ids["zz"] in set(pieces.always_kept())
    kept_ids = {*pieces.always_kept(), *(ids[piece] for piece in ("Жb", "bc", "c"))}
    cut = VocabularyCut(("en-de",), {}, np.array(sorted(kept_ids)), model.module.config.vocab_size)
    # At a lower cost it would be an unknown Ж and "bc".
    assert model.tokenizer.tokenize("Жbc") == ["▁", "Жb", "c"]
    assert pieces.cut_tokenizer(cut).tokenize("Жbc") == ["▁", "Жb", "c"]


def test_marks_of_languages_stay_in_front_of_a_text(model):
    smaller = cut_to_pair(model)
    text = f"{MARKS[1]} {pair_texts().kept['en-de'].sources[0]}"
    (old_row,) = rows_of(model.tokenizer, [text])
    assert model.tokenizer.convert_ids_to_tokens(old_row[0]) == MARKS[1]
    assert rows_of(smaller.tokenizer, [text]) == [smaller.cut.new_ids[old_row].tolist()]


def test_tokens_that_were_added_stay(tmp_path):
    tokenizer = marian_tokenizer(tmp_path, *PIECE_MODELS["two"]())
    tokenizer.add_tokens(["<room>"])
    model = tiny_marian(tokenizer)
    smaller = cut_to_pair(model)
    (old_row,) = rows_of(tokenizer, ["dim <room>"])
    (new_row,) = rows_of(smaller.tokenizer, ["dim <room>"])
    assert smaller.tokenizer.convert_ids_to_tokens(new_row)[-1] == "<room>"
    assert new_row == smaller.cut.new_ids[old_row].tolist()


def test_the_settings_of_sentencepiece_stay(model):
    messages = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    smaller = cut_to_pair(model)
    for side in ("spm_source", "spm_target"):
        old, new = (
            messages.ModelProto.FromString(getattr(tokenizer, side).serialized_model_proto())
            for tokenizer in (model.tokenizer, smaller.tokenizer)
        )
        assert new.normalizer_spec == old.normalizer_spec
        assert new.trainer_spec.model_type == old.trainer_spec.model_type
        assert new.trainer_spec.vocab_size == len(new.pieces) < len(old.pieces)
        assert new.pieces[new.trainer_spec.unk_id].piece == "<unk>"
        remaining_entries = iter(old.pieces)  # each is found behind the one before
        for entry in new.pieces:
            assert entry in remaining_entries


def test_stock_transformers_reads_the_folder(model, tmp_path):
    smaller = cut_to_pair(model)
    texts = pair_texts().kept["en-de"]
    with torch.no_grad():  # which the model then never writes
        model.module.final_logits_bias[:, ~smaller.cut.is_kept] = -1e4
    inputs = model.tokenizer(texts.sources[:16], padding=True, return_tensors="pt")
    translated_ids = model.module.generate(**inputs, **GREEDILY)
    translations = model.tokenizer.batch_decode(translated_ids, skip_special_tokens=True)
    assert len(set(translations)) > 4
    cut_embeddings(model.module, smaller.cut)
    save_model(tmp_path / "out", model.module, smaller.tokenizer)
    with building_alone():
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
        module = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert type(tokenizer) is MarianTokenizer
    assert (tokenizer.source_lang, tokenizer.target_lang) == ("en", "de")
    assert tokenizer.model_max_length == 64
    assert texts.rows(tokenizer) == texts.rows(smaller.tokenizer)
    new_inputs = tokenizer(texts.sources[:16], padding=True, return_tensors="pt")
    new_ids = module.generate(**new_inputs, **GREEDILY)
    assert new_ids.tolist() == smaller.cut.new_ids[translated_ids].tolist()
    assert tokenizer.batch_decode(new_ids, skip_special_tokens=True) == translations
    for file in (tmp_path / "out").glob("*.json"):
        assert tempfile.gettempdir() not in file.read_text()


# Texts of both sides.


def of_pair(texts_by_split: dict[str, list[tuple[str, str]]]) -> Task:
    """A translation task of some pairs of texts."""

    def read(language: str, split: Split, seed: int) -> list[Example]:
        return [
            Example(f"{split}-{number}", source, target=target)
            for number, (source, target) in enumerate(texts_by_split.get(split, []))
        ]

    return Task("mt", (), ("en-de",), aligned=False, read=read)


def test_the_texts_of_a_pair_are_those_of_its_two_languages(tmp_path):
    (tmp_path / "en.txt").write_text("one\ntwo\n")
    (tmp_path / "de.txt").write_text("eins\nzwei\ndrei\n")
    task = of_pair({"dev": [("four", "vier")], "test": [("five", "fünf")]})
    texts = collect_texts(task, ["en-de"], tmp_path)
    kept = TextsBySide(["four", "one", "two"], ["vier", "eins", "zwei", "drei"])
    assert texts.kept == {"en-de": kept}
    assert texts.held_out == {"en-de": TextsBySide(["five"], ["fünf"])}
    without_test = collect_texts(of_pair({}), ["en-de"], tmp_path)
    assert without_test.held_out == {"en-de": TextsBySide(["one"], ["eins"])}
    assert without_test.kept == {"en-de": TextsBySide(["two"], ["zwei", "drei"])}


@pytest.mark.parametrize(("missing", "present"), [("en", "de"), ("de", "en")])
def test_a_pair_needs_texts_of_both_languages(tmp_path, missing, present):
    (tmp_path / f"{present}.txt").write_text("one\n")
    with raises("vocabulary.texts_missing", f"{missing}.txt", "--texts"):
        collect_texts(of_pair({}), ["en-de"], tmp_path)


def test_texts_of_one_side_alone_are_refused(two_sided):
    texts = collect_texts(headlab.task("intents"), ["de"], None)
    with raises("vocabulary.targets_missing", "de", "--languages en-de", "--task translation"):
        cut_by_texts(two_sided, ["de"], texts)


# Tokenizers that cannot be cut.


def test_a_vocabulary_for_each_side_is_refused(tmp_path):
    tokenizer = marian_tokenizer(tmp_path, *PIECE_MODELS["two"](), separate_vocabs=True)
    with raises("vocabulary.tokenizer_unknown", "separate_vocabs", "--vocabulary keep"):
        read_pieces(tiny_marian(tokenizer))


@pytest.mark.parametrize("kind", ["word", "char"])
def test_other_kinds_of_sentencepiece_are_refused(tmp_path, kind):
    target = piece_model(("de",), kind)
    tokenizer = marian_tokenizer(tmp_path, PIECE_MODELS["two"]()[0], target)
    with raises("vocabulary.tokenizer_unknown", kind.upper(), "target"):
        read_pieces(tiny_marian(tokenizer))


def test_random_splits_are_refused(tmp_path):
    sampling = {"enable_sampling": True, "alpha": 0.1, "nbest_size": -1}
    tokenizer = marian_tokenizer(tmp_path, *PIECE_MODELS["two"](), sp_model_kwargs=sampling)
    with raises("vocabulary.tokenizer_unknown", "enable_sampling"):
        read_pieces(tiny_marian(tokenizer))


def test_embeddings_of_each_side_are_refused(two_sided):
    cut = cut_to_pair(two_sided).cut
    config = two_sided.module.config
    with building_alone():
        settings = config.to_dict() | {"share_encoder_decoder_embeddings": False}
        module = type(two_sided.module)(type(config)(**settings))
    with raises("vocabulary.weights_unknown", "decoder"):
        cut_embeddings(module, cut)


def test_tokens_without_an_embedding_are_refused(two_sided):
    two_sided.module.resize_token_embeddings(300)
    with raises("vocabulary.tokenizer_unknown", 300):
        read_pieces(two_sided)


def test_a_missing_protobuf_is_said(two_sided, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    monkeypatch.delattr("sentencepiece.sentencepiece_model_pb2", raising=False)
    with raises("package.protobuf_missing", "protobuf", "headlab[vocabulary]"):
        read_pieces(two_sided)


# The command, on a translation task of its own files.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a mask of it, and a data folder with the pair en-de."""
    folder = tmp_path_factory.mktemp("marian")
    (folder / "pieces").mkdir()
    tokenizer = marian_tokenizer(folder / "pieces", *PIECE_MODELS["two"]())
    save_model(folder / "model", tiny_marian(tokenizer).module, tokenizer)
    model = headlab.load(str(folder / "model"))
    kept = np.ones(model.grid.size, bool)
    kept[[0, 4, 8, 12, 16]] = False
    Mask(model.grid, kept, model.identity()).save(folder / "mask.json")
    translation_folder(folder / "data", {"train": 40, "dev": 60, "test": 30})
    return folder


def pair_arguments(folder: Path) -> tuple[str, ...]:
    return (
        *("--task", "translation", "--data", str(folder / "data")),
        *("--languages", "en-de", "--json"),
    )


@pytest.mark.parametrize("mask", [None, "mask.json"])
def test_the_command_cuts_a_translation_model(folder, capsys, mask, all_words):
    name = f"small-{mask}"
    code, stdout, stderr = export(
        folder, capsys, "small", *pair_arguments(folder), out=name, mask=mask
    )
    assert code == 0, stderr
    result = json.loads(stdout)
    assert result["pieces_after"] < result["pieces_before"]
    assert result["heads_removed"] == (0 if mask is None else 5)
    assert result["max_logit_difference"] <= 1e-5
    assert 0 < result["pieces_lost"]["en-de"] < 0.02
    proof = json.loads((folder / name / "proof.json").read_text())
    assert proof["vocabulary"]["sources"] == {"en": "wordfreq", "de": "wordfreq"}
    assert proof["vocabulary"]["held_out"]["en-de"]["texts"] == 60
    assert proof["compared_on"]["languages"] == ["en-de"]
    written = headlab.load(str(folder / name))
    report = headlab.evaluate(written, translation_task(folder / "data"), split="dev", size=8)
    assert 0 <= report["en-de"].accuracy <= 1


def test_stock_transformers_reads_a_plain_folder_with_a_mask_and_fewer_pieces(folder, capsys):
    arguments = (*pair_arguments(folder), "--vocabulary", "cut")
    code, _, stderr = export(folder, capsys, "folder", *arguments, out="plain")
    assert code == 0, stderr
    model = headlab.load(str(folder / "model"))
    examples = translation_task(folder / "data").examples("en-de", "dev", 8)
    sources = [example.text for example in examples]
    targets: Any = [example.target for example in examples]
    with building_alone():
        tokenizer = AutoTokenizer.from_pretrained(folder / "plain")
        module = AutoModelForSeq2SeqLM.from_pretrained(folder / "plain")
    mask = headlab.load_mask(folder / "mask.json")
    with torch.inference_mode(), gated_in_this_thread(model, mask):
        expected = model.module(**inputs_of(model.tokenizer, sources, targets)).logits
    with torch.inference_mode():
        logits = module(**inputs_of(tokenizer, sources, targets)).logits
    old_vocabulary, new_vocabulary = model.tokenizer.get_vocab(), tokenizer.get_vocab()
    old_ids = [old_vocabulary[token] for token in new_vocabulary]
    new_ids = list(new_vocabulary.values())
    torch.testing.assert_close(logits[..., new_ids], expected[..., old_ids], atol=1e-5, rtol=0)


def inputs_of(tokenizer: Any, sources: list[str], targets: list[str]) -> dict[str, torch.Tensor]:
    """Model inputs of texts and their translations."""
    inputs = dict(tokenizer(sources, padding=True, return_tensors="pt"))
    target_inputs = tokenizer(text_target=targets, padding=True, return_tensors="pt")
    return inputs | {"decoder_input_ids": target_inputs["input_ids"]}


def test_texts_of_two_files_do_without_a_task(folder, capsys, tmp_path):
    (tmp_path / "en.txt").write_text("\n".join(sentences("en")[:50]))
    (tmp_path / "de.txt").write_text("\n".join(sentences("de")[:50]))
    arguments = ("--languages", "en-de", "--texts", str(tmp_path), "--json")
    code, stdout, stderr = export(folder, capsys, "small", *arguments, out="texts", mask=None)
    assert code == 0, stderr
    result = json.loads(stdout)
    assert 0 < result["pieces_lost"]["en-de"] < 1
    assert result["max_logit_difference"] <= 1e-5


def test_one_language_ends_with_a_sentence(folder, capsys):
    code, stdout, stderr = export(
        folder, capsys, "small", "--languages", "de", out="never", mask=None
    )
    assert (code, stdout) == (2, "")
    assert "name a pair of languages, like --languages en-de" in stderr
    assert not (folder / "never").exists()
