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
from support.role_trees import random_trees
from support.tiny_models import LABEL_OPTIONS, LABELS, SMALL_OPTIONS, VOCAB, tiny_model
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
        segment: The segment id of the second text's tokens.
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


def random_classifier(
    family: str, tokenizer: PreTrainedTokenizerBase, words: bool = False, **options: Any
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A random classifier whose answers depend on segment ids, where its family has them.

    Args:
        words: Classify each token, not the text.
        options: Of the configuration; None leaves an option out.
    """
    settings = {**SMALL_OPTIONS, **LABEL_OPTIONS, "pad_token_id": 0, **options}
    settings = {name: value for name, value in settings.items() if value is not None}
    model_class = hf.AutoModelForSequenceClassification
    if words:
        model_class = hf.AutoModelForTokenClassification
    with building_alone(), torch.no_grad():
        torch.manual_seed(0)
        module = model_class.from_config(hf.AutoConfig.for_model(family, **settings))
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.4)
    return module.eval(), tokenizer


def model_of(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Model:
    return make_gateable(Checkpoint("made", "test", "made", module, tokenizer))


def save_model(folder: Path, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    with building_alone():
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def change_json(file: Path, **values: Any) -> None:
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
    "albert": lambda: random_classifier("albert", hf.AlbertTokenizer(vocab=SCORES), **ALBERT),
    "bert": lambda: random_classifier("bert", generic_bert_tokenizer()),
    "electra": lambda: random_classifier("electra", generic_bert_tokenizer(), embedding_size=24),
    "mobilebert": lambda: random_classifier(
        "mobilebert", generic_bert_tokenizer(), embedding_size=12, intra_bottleneck_size=24
    ),
    "rembert": lambda: random_classifier(
        "rembert", generic_bert_tokenizer(), input_embedding_size=12, output_embedding_size=12
    ),
    "canine": lambda: random_classifier("canine", hf.CanineTokenizer(), num_hash_buckets=50),
    "funnel": lambda: random_classifier("funnel", generic_bert_tokenizer(), **FUNNEL),
}
rng = np.random.default_rng(5)
TEXTS = [" ".join(f"w{word}" for word in rng.integers(5, VOCAB, 5)) for _ in range(40)]


def segments_by_hand(tokens: Sequence[int], separator: int) -> list[int]:
    """0 up to the first separator, 1 after it."""
    start_of_second_text = tokens.index(separator) + 1
    return [0] * start_of_second_text + [1] * (len(tokens) - start_of_second_text)


def logits_by_hand(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, with_segments: bool
) -> torch.Tensor:
    """Scores of each pair of texts, [pair, class], asked of transformers one by one."""
    rows = []
    for text, pair in zip(TEXTS[:20], TEXTS[20:], strict=True):
        tokens = tokenizer([text], [pair])["input_ids"][0]
        inputs = {"input_ids": torch.tensor([tokens]), "attention_mask": torch.ones(1, len(tokens))}
        if with_segments:
            separator = int(tokenizer.sep_token_id or 0)
            inputs["token_type_ids"] = torch.tensor([segments_by_hand(tokens, separator)])
        with torch.inference_mode():
            rows.append(module(**inputs).logits[0])
    return torch.stack(rows)


def answers_by_hand(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, with_segments: bool
) -> list[int]:
    logits = logits_by_hand(module, tokenizer, with_segments)
    return [int(answer) for answer in logits.argmax(dim=1)]


def even_out_classes(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Make every class about as frequent an answer, so that other segment ids change some answers."""
    linear_layers = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    (layer,) = (linear for linear in linear_layers if linear.out_features == len(LABELS))
    with torch.no_grad():
        layer.bias -= logits_by_hand(module, tokenizer, with_segments=True).mean(dim=0)


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
    answers = answers_by_hand(module, tokenizer, with_segments=True)
    assert answers != answers_by_hand(module, tokenizer, with_segments=False)
    evaluator = Evaluator(model_of(module, tokenizer), pair_task(answers), "xx")
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
    folder = save_model(tmp_path, module, tokenizer)
    change_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    answers = answers_by_hand(module, tokenizer, with_segments=True)
    model = load(str(folder), device="cpu")
    assert Evaluator(model, pair_task(answers), "xx").evaluate().accuracy == 1.0


def test_reported_07_what_is_known_of_segment_ids_goes_first(tmp_path: Path):
    """No segment ids where files or tokenizer make none, one segment exists, or a text has no second one."""
    module, tokenizer = FAMILIES["bert"]()
    plain_names = ["input_ids", "attention_mask"]
    without_segments = generic_bert_tokenizer(model_input_names=plain_names)
    with_segment_0_alone = generic_bert_tokenizer(segment=0)
    models_without_segments = (
        model_of(module, without_segments),
        model_of(module, with_segment_0_alone),
        model_of(*random_classifier("bert", tokenizer, type_vocab_size=1)),
    )
    for model in models_without_segments:
        evaluator = Evaluator(model, pair_task([0] * 20), "xx")
        assert [*evaluator.tensors(np.arange(2))] == plain_names
        assert "segments" not in answers_spec(evaluator.dataset)["task"]
        assert evaluator.note.count("segment ids") == 0
    single_texts = Evaluator(model_of(module, tokenizer), tiny_task(), "xx")
    assert [*single_texts.tensors(np.arange(2))] == plain_names
    assert [*answers_spec(single_texts.dataset)["task"]] == [
        "name",
        "language",
        "split",
        "size",
        "seed",
        "data_hash",
    ]


def test_reported_07_segment_ids_that_a_model_has_no_embedding_of_are_left_out():
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer = generic_bert_tokenizer(model_input_names=names)
    model = model_of(*random_classifier("roberta", tokenizer, type_vocab_size=1))
    evaluator = Evaluator(model, pair_task([0] * 20), "xx")
    assert "token_type_ids" not in evaluator.tensors(np.arange(2))
    assert evaluator.evaluate().n == 20


def test_reported_07_models_of_transformers_4_need_no_note():
    module, tokenizer = FAMILIES["albert"]()
    module.config.transformers_version = "4.41.2"
    evaluator = Evaluator(model_of(module, tokenizer), pair_task([0] * 20), "xx")
    assert evaluator.note.count("segment ids") == 0


def test_reported_07_headlab_says_with_which_tokens_it_trained(tmp_path: Path):
    module, tokenizer = FAMILIES["albert"]()
    even_out_classes(module, tokenizer)
    examples = pair_task([0] * 20).examples("xx", "dev")
    training_inputs = encode_for_training(tokenizer, module, examples, 64)
    answers_with_segments = answers_by_hand(module, tokenizer, with_segments=True)
    answers_without_segments = answers_by_hand(module, tokenizer, with_segments=False)
    for name, needs, answers in (
        ("now", training_inputs.needs, answers_with_segments),
        ("before", TokenNeeds(), answers_without_segments),
    ):
        folder = tmp_path / name
        write_folder(folder, whole_output(module, tokenizer, needs), {})
        evaluator = Evaluator(load(str(folder), device="cpu"), pair_task(answers), "xx")
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
    return model_of(*random_classifier("roberta", tokenizer, words=True, **options))


def word_task() -> Task:
    example = Example("1", " ".join(WORDS), words=tuple(WORDS), labels=(0, 1, 2, 3, 4, 0))
    return Task("words", LABELS, ("xx",), False, lambda *_: [example])


@pytest.mark.parametrize("tokenizer_kind", ["roberta", "deberta", "generic"])
def test_reported_07_single_words_get_the_space_that_they_have_in_a_text(tokenizer_kind: str):
    model = word_model(byte_level(tokenizer_kind))
    evaluator = Evaluator(model, word_task(), "xx")
    spacing_tokenizer = byte_level(tokenizer_kind, add_prefix_space=True)
    reference = spacing_tokenizer([WORDS], is_split_into_words=True)
    tokens = evaluator.tensors(np.array([0]))["input_ids"].tolist()
    assert tokens == reference["input_ids"]
    assert "Ġthe" in model.tokenizer.convert_ids_to_tokens(tokens[0])
    assert evaluator.inputs.units.tolist() == [6]
    targets = evaluator.inputs.targets(np.array([0])).tolist()[0]
    word_ids = reference.word_ids(0)
    begins_word = [
        word is not None and word not in word_ids[:index] for index, word in enumerate(word_ids)
    ]
    assert [target >= 0 for target in targets] == begins_word
    assert answers_spec(evaluator.dataset)["task"]["spaced_words"] is True
    assert "spaced_words" in evaluator.note


def test_reported_07_roles_accuracy_training_and_attention_see_the_same_tokens():
    model = word_model(byte_level())
    task = word_task()
    tokens = Evaluator(model, task, "xx").tensors(np.array([0]))["input_ids"].tolist()
    sentences = of_task(task, "xx")
    role_tokens = read(model, sentences, "none are wanted")
    assert role_tokens.ids == tokens
    assert any("spaced_words" in note for note in role_tokens.notes)
    assert report_spec(model, sentences, {}, "none are wanted")["task"]["spaced_words"] is True
    examples = task.examples("xx", "dev")
    training_inputs = encode_for_training(model.tokenizer, model.module, examples, 64)
    assert training_inputs.tokens["input_ids"] == tokens
    request = AttentionRequest(model="m", text=" ".join(WORDS), heads=[("encoder", 0, 0)])
    attention = attention_weights(model, request)
    assert len(attention.tokens) == len(tokens[0])
    words_of_tokens = [attention.words[place] for place in attention.places if place >= 0]
    assert words_of_tokens.count("the") == 2


def test_reported_07_the_attention_page_gives_segment_ids():
    module, tokenizer = FAMILIES["albert"]()
    inputs_of_forwards: list[dict[str, Any]] = []
    model = model_of(module, tokenizer)
    module.register_forward_pre_hook(
        lambda _module, _args, inputs: inputs_of_forwards.append(inputs), with_kwargs=True
    )
    request = AttentionRequest(model="m", text="w5 w6", pair="w7", heads=[("encoder", 0, 0)])
    attention_weights(model, request)
    assert inputs_of_forwards[-1]["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]


def test_reported_07_words_of_a_text_keep_the_tokens_of_the_text():
    """Trees are given to a model that was trained on running text, whose first word has no space."""
    tokenizer = byte_level("generic")
    options = {"vocab_size": len(tokenizer), "pad_token_id": 1}
    model = model_of(*random_classifier("roberta", tokenizer, **options))
    (tree,) = random_trees(1, high=5)
    trees = of_trees([tree], "en", "dev")
    role_tokens = read(model, trees, "none are wanted")
    assert role_tokens.ids == tokenizer([" ".join(tree.words)])["input_ids"]
    assert "spaced_words" not in report_spec(model, trees, {}, "none are wanted")["task"]


def test_reported_07_what_is_known_of_words_goes_first(tmp_path: Path):
    """No space is added where the tokenizer adds it, or files say that a model was trained without."""
    for tokenizer in (byte_level(add_prefix_space=True), byte_level(spaced_words=False)):
        evaluator = Evaluator(word_model(tokenizer), word_task(), "xx")
        as_given = tokenizer([WORDS], is_split_into_words=True)["input_ids"]
        assert evaluator.tensors(np.array([0]))["input_ids"].tolist() == as_given
        assert "spaced_words" not in answers_spec(evaluator.dataset)["task"]
        assert "spaced_words" not in evaluator.note
    model_of_spaced_words = word_model(byte_level(spaced_words=True))
    assert "spaced_words" not in Evaluator(model_of_spaced_words, word_task(), "xx").note
    for name, needs, spaces in (
        ("now", TokenNeeds(spaced_words=True), "every"),
        ("before", TokenNeeds(), "none"),
    ):
        write_folder(
            tmp_path / name, whole_output(model_of_spaced_words.module, byte_level(), needs), {}
        )
        assert load(str(tmp_path / name), device="cpu").word_spaces == spaces


def test_reported_07_tokenizers_with_spaces_of_their_own_are_left_alone():
    metaspace = hf.AlbertTokenizer(vocab=[*SCORES, *((f"▁{word}", -1.0) for word in "ab")])
    prepending = Tokenizer(models.BPE({"<unk>": 0, "▁": 1, "a": 2, "b": 3}, [], unk_token="<unk>"))
    prepending.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    legacy = PreTrainedTokenizerFast(tokenizer_object=prepending, pad_token="<unk>")
    for tokenizer in (metaspace, tiny_tokenizer(), legacy):
        assert tiny_model("bert-tokens", tokenizer=tokenizer).word_spaces == "none"


# Texts are cut without a change to the tokenizer.

POST_PROCESSORS = {
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


def tokenizer_with(
    post_processor: processors.PostProcessor | None, truncation_side: str
) -> PreTrainedTokenizerFast:
    backend = tiny_tokenizer().backend_tokenizer
    backend.post_processor = post_processor or processors.Sequence([])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        truncation_side=truncation_side,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def assert_same_tokens(tokens: Any, expected_tokens: Any) -> None:
    assert tokens.columns == dict(expected_tokens)
    assert tokens.word_ids(0) == expected_tokens.word_ids(0)


@pytest.mark.parametrize("truncation_side", ["right", "left"])
@pytest.mark.parametrize("post_processor", POST_PROCESSORS)
def test_reported_10_texts_are_cut_as_the_tokenizer_would(
    post_processor: str, truncation_side: str
):
    our_tokenizer = tokenizer_with(POST_PROCESSORS[post_processor], truncation_side)
    reference = tokenizer_with(POST_PROCESSORS[post_processor], truncation_side)
    for number_of_words in range(0, 12, 2):
        words = (["w5", "w6", "w7"] * 5)[:number_of_words]
        for max_tokens in (6, 7, 12):
            options = {"truncation": True, "max_length": max_tokens}
            expected_tokens = reference([words], is_split_into_words=True, **options)
            tokens = tokenise(our_tokenizer, [words], split=True, max_tokens=max_tokens)
            assert_same_tokens(tokens, expected_tokens)
            for length_of_pair in (0, 3, 8):
                texts = [" ".join(words)]
                pairs = [" ".join(["w8"] * length_of_pair)]
                expected_tokens = reference(texts, pairs, is_split_into_words=False, **options)
                tokens = tokenise(our_tokenizer, texts, pairs, split=False, max_tokens=max_tokens)
                assert_same_tokens(tokens, expected_tokens)
    assert our_tokenizer.backend_tokenizer.truncation is None


def test_reported_10_no_use_changes_the_tokenizer_that_threads_share():
    long_text = " ".join(["w5"] * 100)
    text_examples = [Example("1", long_text, 0), Example("2", "w6", 1)]
    texts = Task("texts", LABELS, ("xx",), False, lambda *_: text_examples)
    word_example = Example("1", long_text, words=tuple(long_text.split()), labels=(0,) * 100)
    words = replace(texts, read=lambda *_: [word_example])
    target_example = Example("1", long_text, target=long_text)
    targets = replace(texts, labels=(), read=lambda *_: [target_example])
    request = AttentionRequest(model="m", text=long_text, heads=[("encoder", 0, 0)])
    for family, task in (("bert", texts), ("bert-tokens", words), ("marian", targets)):
        model = tiny_model(family, tokenizer=tiny_tokenizer())
        evaluator = Evaluator(model, task, "xx")
        assert evaluator.tensors(np.array([0]))["input_ids"].shape[1] == 64  # it was cut
        read(model, of_task(task, "xx"), "none are wanted")
        backend = model.tokenizer.backend_tokenizer
        assert backend.truncation is None
        assert backend.padding is None
        if family != "marian":
            attention_weights(model, request)
            assert backend.truncation is None
            assert backend.padding is None
    tokenizer = tiny_tokenizer()
    encode_for_training(tokenizer, model.module, texts.examples("xx", "dev"), 16)
    assert tokenizer.backend_tokenizer.truncation is None


def test_reported_10_cut_and_uncut_texts_beside_each_other_in_threads():
    model = tiny_model("bert", tokenizer=tiny_tokenizer())
    texts = [" ".join(["w5"] * 100)] * 4
    barrier = threading.Barrier(4)

    def lengths(is_cut: bool) -> set[int]:
        lengths = set()
        for _ in range(20):
            barrier.wait()
            if is_cut:
                rows = encode(model, texts)["input_ids"]
            else:
                rows = tokens_of_texts(model, texts, keep_end_tokens=True)
            lengths |= {len(row) for row in rows}
        return lengths

    with ThreadPoolExecutor(4) as pool:
        lengths_by_thread = [*pool.map(lengths, [True, False, True, False])]
    assert lengths_by_thread == [{64}, {102}, {64}, {102}]


class TranslationTokenizer:
    """A tokenizer of several languages, as far as `LanguageSetup` uses it."""

    src_lang = "en"
    tgt_lang = "de"


def test_reported_10_a_language_that_is_set_is_not_seen_by_other_threads():
    tokenizer: Any = TranslationTokenizer()
    languages_seen: list[tuple[str, str]] = []
    has_started = threading.Event()

    def translate_in_other_thread() -> None:
        has_started.set()
        with LanguageSetup(source="fr", target="es").set_up(tokenizer):
            languages_seen.append((tokenizer.src_lang, tokenizer.tgt_lang))

    thread = threading.Thread(target=translate_in_other_thread)
    with LanguageSetup(source="pl", target="ru").set_up(tokenizer):
        thread.start()
        has_started.wait()
        languages_seen.append((tokenizer.src_lang, tokenizer.tgt_lang))
    thread.join()
    assert languages_seen == [("pl", "ru"), ("fr", "es")]
    assert tokenizer.src_lang == "en"
    assert tokenizer.tgt_lang == "de"


def test_reported_10_targets_are_cut_as_the_tokenizer_would():
    tokenizer = tiny_tokenizer()
    expected_tokens = tiny_tokenizer()(text_target=["w5 w6 w7 w8"], truncation=True, max_length=4)
    assert tokenise(tokenizer, ["w5 w6 w7 w8"], target=True, max_tokens=4).columns == dict(
        expected_tokens
    )
