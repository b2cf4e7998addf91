"""Models are given the tokens that they were trained with, and a tokenizer is never changed for others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from support.role_trees import trees as random_trees
from support.tiny_models import LABELS, NAMES, SMALL, VOCAB, tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from headlab.evaluation import Evaluator, LanguageSetup, encode, encode_words, tokens_of_texts
from headlab.hooks import Model, load, make_gateable
from headlab.methods.spec import answers_spec
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.models.tokenising import TokenNeeds, tokenise
from headlab.roles import of_task, of_trees
from headlab.roles.study import report_spec
from headlab.roles.tokenised import read
from headlab.tasks import Example, Task
from headlab.training.output import whole_output, write_folder
from headlab.training.steps import encode as encode_for_training
from headlab.worker.answers import attention_weights
from headlab.worker.schemas import AttentionRequest

# Pairs and segment ids.

PIECES = {
    "<pad>": 0,
    "<unk>": 1,
    "[CLS]": 2,
    "[SEP]": 3,
    "[MASK]": 4,
    **{f"▁w{i}": i for i in range(5, VOCAB)},
}
SCORES = [(piece, -1.0) for piece in PIECES]
VOCABULARY = {piece.removeprefix("▁"): number for piece, number in PIECES.items()}


def generic_bert_tokenizer(segment: int = 1, **options: Any) -> PreTrainedTokenizerFast:
    """A BERT's tokenizer saved with the generic class.

    Args:
        segment: That of the second text.
    """
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{segment} [SEP]:{segment}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="[CLS]",
        sep_token="[SEP]",
        **options,
    )


def classifier(
    family: str, tokenizer: PreTrainedTokenizerBase, words: bool = False, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A random classifier whose answers depend on segment ids, where it has such."""
    with building_alone(), torch.no_grad():
        torch.manual_seed(0)
        settings = {**SMALL, **NAMES, "pad_token_id": 0, **options}
        settings = {name: value for name, value in settings.items() if value is not None}
        config = hf.AutoConfig.for_model(family, **settings)
        kind = (
            hf.AutoModelForTokenClassification if words else hf.AutoModelForSequenceClassification
        )
        module = kind.from_config(config)
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    return module.eval(), tokenizer


def model_of(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Model:
    return make_gateable(Checkpoint("made", "test", "made", module, tokenizer))


def saved(folder: Path, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    with building_alone():
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


ALBERT = {"embedding_size": 12, "classifier_dropout_prob": 0.0}
FUNNEL = {
    "block_sizes": [1, 1],
    "num_hidden_layers": None,
    "num_decoder_layers": 1,
    "d_model": 24,
    "n_head": 4,
    "d_head": 6,
    "d_inner": 32,
}
FAMILIES: dict[str, Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerBase]]] = {
    "albert": lambda: classifier("albert", hf.AlbertTokenizer(vocab=SCORES), **ALBERT),
    "bert": lambda: classifier("bert", generic_bert_tokenizer()),
    "electra": lambda: classifier("electra", generic_bert_tokenizer(), embedding_size=24),
    "mobilebert": lambda: classifier(
        "mobilebert", generic_bert_tokenizer(), embedding_size=12, intra_bottleneck_size=24
    ),
    "rembert": lambda: classifier(
        "rembert", generic_bert_tokenizer(), input_embedding_size=12, output_embedding_size=12
    ),
    "canine": lambda: classifier("canine", hf.CanineTokenizer(), num_hash_buckets=50),
    "funnel": lambda: classifier("funnel", generic_bert_tokenizer(), **FUNNEL),
}
rng = np.random.default_rng(5)
TEXTS = [" ".join(f"w{word}" for word in rng.integers(5, VOCAB, 5)) for _ in range(40)]


def segments_by_hand(tokens: Sequence[int], separator: int) -> list[int]:
    second = tokens.index(separator) + 1
    return [0] * second + [1] * (len(tokens) - second)


def logits_by_hand(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, segments: bool
) -> torch.Tensor:
    """Scores of each pair of texts, [pair, class], asked of transformers one by one."""
    rows = []
    for first, second in zip(TEXTS[:20], TEXTS[20:], strict=True):
        tokens = tokenizer([first], [second])["input_ids"][0]
        inputs = {"input_ids": torch.tensor([tokens]), "attention_mask": torch.ones(1, len(tokens))}
        if segments:
            separator = int(tokenizer.sep_token_id or 0)
            inputs["token_type_ids"] = torch.tensor([segments_by_hand(tokens, separator)])
        with torch.inference_mode():
            rows.append(module(**inputs).logits[0])
    return torch.stack(rows)


def answers_by_hand(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, segments: bool
) -> list[int]:
    return [int(answer) for answer in logits_by_hand(module, tokenizer, segments).argmax(dim=1)]


def even_out_classes(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make every class about as frequent an answer, so that other segment ids change some answers."""
    (layer,) = (
        m
        for m in module.modules()
        if isinstance(m, torch.nn.Linear) and m.out_features == len(LABELS)
    )
    with torch.no_grad():
        layer.bias -= logits_by_hand(module, tokenizer, segments=True).mean(dim=0)


def pair_task(labels: Sequence[int]) -> Task:
    rows = zip(TEXTS[:20], TEXTS[20:], labels, strict=True)
    examples = [
        Example(str(row), text, label, pair) for row, (text, pair, label) in enumerate(rows)
    ]
    return Task("pairs", LABELS, ("xx",), True, lambda *_: examples)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "funnel"])
def test_reported_07_pairs_get_the_segment_ids_that_a_family_is_trained_with(family: str):
    module, tokenizer = FAMILIES[family]()
    even_out_classes(module, tokenizer)
    right = answers_by_hand(module, tokenizer, segments=True)
    assert right != answers_by_hand(module, tokenizer, segments=False)
    evaluator = Evaluator(model_of(module, tokenizer), pair_task(right), "xx")
    assert evaluator.evaluate().accuracy == 1.0
    # results without them are of other tokens
    assert answers_spec(evaluator.dataset)["task"]["segments"] is True
    assert f"{family} models are pretrained with" in evaluator.note


def test_reported_07_funnel_has_a_segment_for_its_class_token():
    model = model_of(*FAMILIES["funnel"]())
    tokenizer = generic_bert_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:2 $A [SEP]",
        pair="[CLS]:2 $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    model = model_of(model.module, tokenizer)
    assert encode(model, ["w5"])["token_type_ids"] == [[2, 0, 0]]
    assert encode(model, ["w5"], ["w6"])["token_type_ids"] == [[2, 0, 0, 1, 1]]
    assert encode_words(model, [["w5"]]).columns["token_type_ids"] == [[2, 0, 0]]


def test_reported_07_a_loaded_folder_gets_them_too(tmp_path: Path):
    module, tokenizer = FAMILIES["bert"]()
    folder = saved(tmp_path, module, tokenizer)
    change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    right = answers_by_hand(module, tokenizer, segments=True)
    model = load(str(folder), device="cpu")
    assert Evaluator(model, pair_task(right), "xx").evaluate().accuracy == 1.0


def test_reported_07_what_is_known_of_segment_ids_goes_first(tmp_path: Path):
    """None where the files say so, one segment exists, the tokenizer makes none, or a text has no second one."""
    module, tokenizer = FAMILIES["bert"]()
    plain = ["input_ids", "attention_mask"]
    stated = generic_bert_tokenizer(model_input_names=plain)
    one_text = generic_bert_tokenizer(segment=0)
    one_segment = classifier("bert", tokenizer, type_vocab_size=1)
    for model in (model_of(module, stated), model_of(module, one_text), model_of(*one_segment)):
        evaluator = Evaluator(model, pair_task([0] * 20), "xx")
        assert [*evaluator.tensors(np.arange(2))] == plain
        assert "segments" not in answers_spec(evaluator.dataset)["task"]
        assert evaluator.note.count("segment ids") == 0
    single = Evaluator(model_of(module, tokenizer), tiny_task(), "xx")
    assert [*single.tensors(np.arange(2))] == plain
    assert [*answers_spec(single.dataset)["task"]] == [
        "name",
        "language",
        "split",
        "size",
        "seed",
        "data_hash",
    ]


def test_reported_07_segment_ids_that_a_model_has_no_embedding_of_are_left_out():
    names = ["input_ids", "token_type_ids", "attention_mask"]
    model = model_of(
        *classifier("roberta", generic_bert_tokenizer(model_input_names=names), type_vocab_size=1)
    )
    evaluator = Evaluator(model, pair_task([0] * 20), "xx")
    assert "token_type_ids" not in evaluator.tensors(np.arange(2))
    assert evaluator.evaluate().n == 20


def test_reported_07_models_of_transformers_4_need_no_note():
    module, tokenizer = FAMILIES["albert"]()
    module.config.transformers_version = "4.41.2"
    assert (
        Evaluator(model_of(module, tokenizer), pair_task([0] * 20), "xx").note.count("segment ids")
        == 0
    )


def test_reported_07_headlab_says_with_which_tokens_it_trained(tmp_path: Path):
    module, tokenizer = FAMILIES["albert"]()
    even_out_classes(module, tokenizer)
    examples = pair_task([0] * 20).examples("xx", "dev")
    prepared = encode_for_training(tokenizer, module, examples, 64)
    right = answers_by_hand(module, tokenizer, segments=True)
    without = answers_by_hand(module, tokenizer, segments=False)
    for name, needs, answers in (("now", prepared.needs, right), ("before", TokenNeeds(), without)):
        write_folder(tmp_path / name, whole_output(module, tokenizer, needs), {})
        evaluator = Evaluator(load(str(tmp_path / name), device="cpu"), pair_task(answers), "xx")
        assert evaluator.evaluate().accuracy == 1.0
        assert "segment ids" not in evaluator.note
        assert "segments" not in answers_spec(evaluator.dataset)["task"]


# Words given one by one.

WORDS = ["the", "dog", "the", "ran", "to", "dog"]


def byte_level_files() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a byte-level tokenizer with whole words that begin with a space."""
    merges = [
        ("Ġ", "t"),
        ("h", "e"),
        ("Ġt", "he"),
        ("Ġ", "d"),
        ("o", "g"),
        ("Ġd", "og"),
        ("r", "a"),
        ("ra", "n"),
    ]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*special, *letters, *("".join(merge) for merge in merges)]
    return {piece: number for number, piece in enumerate(pieces)}, merges


def byte_level(
    kind: str = "roberta", *, add_prefix_space: bool = False, **options: Any
) -> PreTrainedTokenizerBase:
    vocabulary, merges = byte_level_files()
    if kind == "roberta":
        return hf.RobertaTokenizer(
            vocab=vocabulary, merges=merges, add_prefix_space=add_prefix_space, **options
        )
    if kind == "deberta":
        names = {
            "cls_token": "<s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
        }
        return hf.DebertaTokenizer(
            vocab=vocabulary,
            merges=merges,
            add_prefix_space=add_prefix_space,
            mask_token="<mask>",
            **names,
            **options,
        )
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", **options
    )


def word_model(tokenizer: PreTrainedTokenizerBase) -> Model:
    options = {"vocab_size": len(tokenizer), "pad_token_id": 1, "type_vocab_size": 1}
    return model_of(*classifier("roberta", tokenizer, words=True, **options))


def word_task() -> Task:
    example = Example("1", " ".join(WORDS), words=tuple(WORDS), labels=(0, 1, 2, 3, 4, 0))
    return Task("words", LABELS, ("xx",), False, lambda *_: [example])


@pytest.mark.parametrize("kind", ["roberta", "deberta", "generic"])
def test_reported_07_single_words_get_the_space_that_they_have_in_a_text(kind: str):
    model = word_model(byte_level(kind))
    evaluator = Evaluator(model, word_task(), "xx")
    reference = byte_level(kind, add_prefix_space=True)([WORDS], is_split_into_words=True)
    tokens = evaluator.tensors(np.array([0]))["input_ids"].tolist()
    assert tokens == reference["input_ids"]
    assert "Ġthe" in model.tokenizer.convert_ids_to_tokens(tokens[0])
    assert evaluator.inputs.units.tolist() == [6]
    targets = evaluator.inputs.targets(np.array([0])).tolist()[0]
    places = reference.word_ids(0)
    first_of_word = [word is not None and word not in places[:n] for n, word in enumerate(places)]
    assert [target >= 0 for target in targets] == first_of_word
    assert answers_spec(evaluator.dataset)["task"]["spaced_words"] is True
    assert "spaced_words" in evaluator.note


def test_reported_07_roles_accuracy_training_and_attention_see_the_same_tokens():
    model = word_model(byte_level())
    task = word_task()
    tokens = Evaluator(model, task, "xx").tensors(np.array([0]))["input_ids"].tolist()
    sentences = of_task(task, "xx")
    given = read(model, sentences, "none are wanted")
    assert given.ids == tokens
    assert any("spaced_words" in note for note in given.notes)
    assert report_spec(model, sentences, {}, "none are wanted")["task"]["spaced_words"] is True
    examples = task.examples("xx", "dev")
    assert (
        encode_for_training(model.tokenizer, model.module, examples, 64).tokens["input_ids"]
        == tokens
    )
    seen = attention_weights(
        model, AttentionRequest(model="m", text=" ".join(WORDS), heads=[("encoder", 0, 0)])
    )
    assert len(seen.tokens) == len(tokens[0])
    assert [
        seen.words[place] for place in seen.places if place >= 0 and seen.words[place] == "the"
    ] == ["the"] * 2


def test_reported_07_the_attention_page_gives_segment_ids():
    module, tokenizer = FAMILIES["albert"]()
    given: list[dict[str, Any]] = []
    model = model_of(module, tokenizer)
    module.register_forward_pre_hook(
        lambda _module, _args, inputs: given.append(inputs), with_kwargs=True
    )
    attention_weights(
        model, AttentionRequest(model="m", text="w5 w6", pair="w7", heads=[("encoder", 0, 0)])
    )
    assert given[-1]["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]


def test_reported_07_words_of_a_text_keep_the_tokens_of_the_text():
    """Trees for a model that was trained on running text, whose first word has no space."""
    tokenizer = byte_level("generic")
    model = model_of(*classifier("roberta", tokenizer, vocab_size=len(tokenizer), pad_token_id=1))
    (tree,) = random_trees(1, high=5)
    trees = of_trees([tree], "en", "dev")
    given = read(model, trees, "none are wanted")
    assert given.ids == tokenizer([" ".join(tree.words)])["input_ids"]
    assert "spaced_words" not in report_spec(model, trees, {}, "none are wanted")["task"]


def test_reported_07_what_is_known_of_words_goes_first(tmp_path: Path):
    """No more spaces where the tokenizer puts them, or the files say that a model was trained without."""
    for tokenizer in (byte_level(add_prefix_space=True), byte_level(spaced_words=False)):
        evaluator = Evaluator(word_model(tokenizer), word_task(), "xx")
        as_given = tokenizer([WORDS], is_split_into_words=True)["input_ids"]
        assert evaluator.tensors(np.array([0]))["input_ids"].tolist() == as_given
        assert "spaced_words" not in answers_spec(evaluator.dataset)["task"]
        assert "spaced_words" not in evaluator.note
    stated = word_model(byte_level(spaced_words=True))
    assert "spaced_words" not in Evaluator(stated, word_task(), "xx").note
    for name, needs, spaces in (
        ("now", TokenNeeds(spaced_words=True), "every"),
        ("before", TokenNeeds(), "none"),
    ):
        write_folder(tmp_path / name, whole_output(stated.module, byte_level(), needs), {})
        assert load(str(tmp_path / name), device="cpu").word_spaces == spaces


def test_reported_07_tokenizers_with_spaces_of_their_own_are_left_alone():
    metaspace = hf.AlbertTokenizer(vocab=[*SCORES, *((f"▁{word}", -1.0) for word in "ab")])
    legacy = Tokenizer(models.BPE({"<unk>": 0, "▁": 1, "a": 2, "b": 3}, [], unk_token="<unk>"))
    legacy.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    for tokenizer in (
        metaspace,
        tiny_tokenizer(),
        PreTrainedTokenizerFast(tokenizer_object=legacy, pad_token="<unk>"),
    ):
        assert tiny_model("bert-tokens", tokenizer=tokenizer).word_spaces == "none"


# Cuts that leave the tokenizer as it is.

AROUND = {
    "none": None,
    "bert": processors.BertProcessing(("</s>", 2), ("<s>", 1)),
    "roberta": processors.RobertaProcessing(("</s>", 2), ("<s>", 1)),
    "second first": processors.TemplateProcessing(
        single="<s>:2 $A </s>",
        pair="$B:1 </s>:1 $A <s>:2",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    ),
    "start only": processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing(
                single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
            ),
        ]
    ),
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("around", AROUND)
def test_reported_10_texts_are_cut_as_the_tokenizer_would(around: str, side: str):
    tokenizers = []
    for _ in range(2):
        backend = tiny_tokenizer().backend_tokenizer
        backend.post_processor = AROUND[around] or processors.Sequence([])
        names = ["input_ids", "token_type_ids", "attention_mask"]
        options: dict[str, Any] = {"truncation_side": side, "model_input_names": names}
        tokenizers.append(
            PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", **options)
        )
    ours, theirs = tokenizers
    for first in range(0, 12, 2):
        for second in (None, 0, 3, 8):
            for limit in (6, 7, 12):
                texts = [" ".join(["w5", "w6", "w7"] * 5).split()[:first]]
                split = second is None
                given: list[Any] = texts if split else [" ".join(texts[0])]
                pairs = None if second is None else [" ".join(["w8"] * second)]
                tokens = tokenise(ours, given, pairs, split=split, max_tokens=limit)
                options = {"is_split_into_words": split, "truncation": True, "max_length": limit}
                expected = theirs(given, pairs, **options)
                assert tokens.columns == dict(expected)
                assert tokens.word_ids(0) == expected.word_ids(0)
    assert ours.backend_tokenizer.truncation is None


def test_reported_10_no_use_changes_the_tokenizer_that_threads_share():
    long = " ".join(["w5"] * 100)
    texts = Task(
        "texts", LABELS, ("xx",), False, lambda *_: [Example("1", long, 0), Example("2", "w6", 1)]
    )
    words = replace(
        texts, read=lambda *_: [Example("1", long, words=tuple(long.split()), labels=(0,) * 100)]
    )
    targets = replace(texts, labels=(), read=lambda *_: [Example("1", long, target=long)])
    for family, task in (("bert", texts), ("bert-tokens", words), ("marian", targets)):
        model = tiny_model(family, tokenizer=tiny_tokenizer())
        evaluator = Evaluator(model, task, "xx")
        assert evaluator.tensors(np.array([0]))["input_ids"].shape[1] == 64  # it was cut
        read(model, of_task(task, "xx"), "none are wanted")
        backend = model.tokenizer.backend_tokenizer
        assert (backend.truncation, backend.padding) == (None, None)
        if family != "marian":
            attention_weights(
                model, AttentionRequest(model="m", text=long, heads=[("encoder", 0, 0)])
            )
            assert (backend.truncation, backend.padding) == (None, None)
    tokenizer = tiny_tokenizer()
    encode_for_training(tokenizer, model.module, texts.examples("xx", "dev"), 16)
    assert tokenizer.backend_tokenizer.truncation is None


def test_reported_10_cut_and_uncut_texts_beside_each_other_in_threads():
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    texts = [" ".join(["w5"] * 100)] * 4
    barrier = threading.Barrier(4)

    def lengths(cut: bool) -> set[int]:
        found = set()
        for _ in range(20):
            barrier.wait()
            rows = (
                encode(model, texts)["input_ids"]
                if cut
                else tokens_of_texts(model, texts, keep_end_tokens=True)
            )
            found |= {len(row) for row in rows}
        return found

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(lengths, [True, False, True, False])] == [{64}, {102}, {64}, {102}]


class Translating:
    """A tokenizer of several languages, as far as `LanguageSetup` uses it."""

    src_lang = "en"
    tgt_lang = "de"


def test_reported_10_a_language_that_is_set_is_not_seen_by_other_threads():
    tokenizer: Any = Translating()
    seen: list[tuple[str, str]] = []
    started = threading.Event()

    def other() -> None:
        started.set()
        with LanguageSetup(source="fr", target="es").set_up(tokenizer):
            seen.append((tokenizer.src_lang, tokenizer.tgt_lang))

    thread = threading.Thread(target=other)
    with LanguageSetup(source="pl", target="ru").set_up(tokenizer):
        thread.start()
        started.wait()
        seen.append((tokenizer.src_lang, tokenizer.tgt_lang))
    thread.join()
    assert seen == [("pl", "ru"), ("fr", "es")]
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == ("en", "de")


def test_reported_10_targets_are_cut_as_before():
    tokenizer = tiny_tokenizer()
    expected = tiny_tokenizer()(text_target=["w5 w6 w7 w8"], truncation=True, max_length=4)
    assert tokenise(tokenizer, ["w5 w6 w7 w8"], target=True, max_tokens=4).columns == dict(expected)
