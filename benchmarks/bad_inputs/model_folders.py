"""Folders of models with one thing wrong, and names that name no model.

A folder is checked as before a job, loaded, and evaluated on two examples. What is wrong is a key of
its configuration, of its tokenizer's files or of a weights file's header; bytes of one of them; a
weight; or a file that is missing, empty, a folder, a link, or not readable.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

# Names that no folder has must not be looked for on the hub; huggingface_hub reads this on import.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from support.fuzzing import ODD_VALUES, spoil
from support.saved_models import save_family
from support.shrunk_families import random_model, uneven_mask
from support.tiny_task import tiny_tokenizer

import headlab
from bad_inputs.case import Answer, BadInput, answer_to, process_answer
from bad_inputs.json_values import json_bytes, value_paths, value_text
from headlab.core import HeadlabError
from headlab.models.load import examine_model
from headlab.shrink import shrink_model

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
EXAMPLES = 2

TASKS: Mapping[str, tuple[str, Sequence[str]]] = {
    "texts": (
        'text = "text", label = "label"',
        ["text,label", "w4 w5 w6,a", "w7 w8,b", "w9,c", "w10,d", "w11 w5,e"],
    ),
    "pairs": (
        'text = "text", pair = "pair", label = "label"',
        ["text,pair,label", "w4,w5,a", "w7,w8,b", "w9,w7,c", "w10,w4,d", "w11,w5,e"],
    ),
    "words": (
        'words = "words", labels = "labels"',
        ["words,labels", "w4 w5 w6,a b c", "w7 w8,d e", "w9 w10,a b"],
    ),
    "continued": ('text = "text"', ["text", "w4 w5 w6 w7", "w8 w9 w4", "w10 w11 w12"]),
    "translated": (
        'text = "text", target = "target"',
        ["text,target", "w4 w5,w6 w7", "w8,w9 w4", "w10 w5,w11"],
    ),
}
# Families of tests/support/tiny_models.py, and the task that each of them does.
FAMILY_TASKS = {
    "bert": "texts",
    "xlm-roberta": "pairs",
    "bert-tokens": "words",
    "gpt2": "texts",
    "llama-lm": "continued",
    "marian": "translated",
    "t5": "translated",
    "modernbert": "texts",
    "deberta-v2": "pairs",
    "shrunk bert": "texts",
}
# Values that suit some keys of a configuration, and are wrong all the same.
PLAUSIBLE: tuple[Any, ...] = (
    2, 3, 5, 7, 8, 23, 25, 48, 96, 98, 100, 127, 1000, 65537, 10**6, 10**9, 2**31, 2**63, 2**64, -2, -100, 0.5, 0.0,
    "bert", "gelu", "relu", "float32", "24", "auto", [0], [1, 2], [4, 4, 4], {"0": "a"}, {"0": "a", "1": "a"},
)  # fmt: skip
QUANTISATIONS: tuple[Any, ...] = (
    {"quant_method": "bitsandbytes", "load_in_4bit": True},
    {"quant_method": "bitsandbytes", "load_in_8bit": True},
    {"load_in_4bit": True, "load_in_8bit": True},
    {"quant_method": "gptq", "bits": 4},
    {"quant_method": "gptq", "bits": 400, "group_size": "x"},
    {"quant_method": "awq", "bits": 4},
    {"quant_method": "compressed-tensors"},
    {"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}},
    {"quant_method": "torchao", "quant_type": "int4wo"},
    {"quant_method": "fp8"},
    {"quant_method": "fp8", "weight_block_size": [0, 0]},
    {"quant_method": "mxfp4"},
    {"quant_method": "hqq"},
    {"quant_method": "quanto", "weights": "int8"},
    {"quant_method": "eetq"},
    {"quant_method": "aqlm"},
    {"quant_method": "vptq"},
    {"quant_method": "higgs"},
    {"quant_method": "spqr"},
    {"quant_method": "fbgemm_fp8"},
    {"quant_method": "bitnet"},
    {"quant_method": "auto-round"},
    {"quant_method": "none of them"},
    {"quant_method": 7},
    {"quant_method": None},
    {"bits": 4},
    {},
    [],
    "fp8",
    4,
    True,
)
CONFIG_VALUES: Mapping[str, Sequence[Any]] = {
    "quantization_config": QUANTISATIONS,
    "compression_config": QUANTISATIONS,
    "architectures": (
        ["NoSuchClass"], ["BertModel"], ["BertForMaskedLM"], ["BertForSequenceClassification", "BertModel"],
        ["GPT2Model"],
        ["PreTrainedModel"], ["AutoModel"], ["BertConfig"], ["os"], ["T5EncoderModel"], ["CLIPModel"], [None],
        [[]], "Bert",
        ["BertForTokenClassification"], ["BertForQuestionAnswering"], ["BertForMultipleChoice"], ["WhisperModel"],
        ["ViTForImageClassification"], ["MambaForCausalLM"], ["__class__"], ["BertForSequenceClassification" * 200],
    ),
    "model_type": (
        "no-such-type", "bert", "roberta", "gpt2", "t5", "llama", "vit", "clip", "mamba", "whisper",
        "headlab_shrunk_bert",
        "headlab-shrunk-no-such", "auto", "BERT", "xlm-roberta", "albert", "encoder-decoder", "timm_wrapper",
        "bert/../x",
    ),
    "torch_dtype": ("float16", "bfloat16", "float64", "int8", "float8_e4m3fn", "complex64", "torch.float32",
        "no_dtype"),
    "dtype": ("float16", "bfloat16", "float64", "int8", "float8_e4m3fn", "complex64", "torch.float32", "no_dtype"),
    "_attn_implementation": ("flash_attention_2", "eager", "flex_attention", "none",
        "kernels-community/flash-attn", 3),
    "attn_implementation": ("flash_attention_2", "flex_attention", "paged|eager", "none", "a/b:c", 3),
    "auto_map": ({"AutoConfig": "x.X"}, {"AutoModel": "modeling.X"}, {"AutoModel": "a/b--x.X"}, "x",
        {"AutoModel": None}),
    "id2label": (
        {}, {"0": "a"}, {"a": 0}, {"0": None}, {"1": "b", "2": "c"}, {"0": ["a"]}, {"-1": "a"}, {"0": ""},
        {"1e3": "a"},
        {str(number): "same" for number in range(5)}, {str(number): "a" for number in range(9)}, ["a", "b"], "abcde",
        {str(number): number for number in range(5)}, {"0": "x" * 100_000}, {"0": "\ud800"},
    ),
    "label2id": ({}, {"a": 9}, {"a": "0"}, ["a"], {"a": None}, {"": 0}),
    "num_labels": (0, 1, 2, 4, 6, 100, 10**9, "5", [5], None),
    "text_config": ({}, {"model_type": "bert"}, {"model_type": "none"}, {"vocab_size": 3}, [], "bert", 1),
    "vision_config": ({}, {"model_type": "vit"}, 1),
    "encoder": ({}, {"model_type": "bert"}),
    "decoder": ({}, {"model_type": "bert"}),
    "rope_scaling": ({}, {"type": "none"}, {"rope_type": "linear"}, {"rope_type": "yarn", "factor": -1},
        {"factor": "x"}),
    "rope_parameters": ({}, {"rope_type": "none"}, {"rope_type": "linear"}, {"rope_theta": 0}, {"rope_theta": "x"}),
    "layer_types": ([], ["full_attention"], ["none"] * 3, ["sliding_attention"] * 3, ["full_attention"] * 30,
        [None] * 3),
    "pruned_heads": ({"0": [0]}, {"0": [0, 1, 2, 3]}, {"9": [0]}, {"0": [99]}, {"x": [0]}, [0], {"0": 0}),
    "hidden_act": ("none", "gelu_new", "swish", "softmax", "__class__"),
    "problem_type": ("regression", "multi_label_classification", "none"),
    "task_specific_params": ({"translation_en_to_de": None}, {"translation_en_to_de": {"prefix": 3}}, {"x": 1}, [1]),
    "transformers_weights": ("model.safetensors", "no.safetensors", "../model.safetensors", "config.json", "x.bin"),
    "tie_word_embeddings": (True, False, "no"),
    "is_encoder_decoder": (True, False, "no"),
    "is_decoder": (True, False, "no"),
    "add_cross_attention": (True, False, "no"),
    "position_embedding_type": ("relative_key", "none", "rotary"),
    "use_cache": (True, False, "no"),
    "output_attentions": (True, False),
    "output_hidden_states": (True, False),
    "return_dict": (True, False),
    "torchscript": (True, False),
    "use_bfloat16": (True,),
    "chunk_size_feed_forward": (1, 7, 10**9),
    "per_layer_config": ({},),
    "headlab_heads": ({}, {"encoder": [[0]]}, [1]),
    "headlab_sealed": ({}, [1], {"num_heads": 1}),
}  # fmt: skip
TOKENIZER_VALUES: Mapping[str, Sequence[Any]] = {
    "tokenizer_class": (
        "NoSuchTokenizer", "BertTokenizer", "BertTokenizerFast", "GPT2Tokenizer", "T5Tokenizer", "MarianTokenizer",
        "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "BertModel", "NllbTokenizer", "os", 7,
        "XLMRobertaTokenizer", "LlamaTokenizer", "CanineTokenizer", "ByT5Tokenizer", "MecabTokenizer",
    ),
    "model_max_length": (0, 1, 2, 3, -1, 10**30, 1e30, "512", 0.5),
    "pad_token": ("</s>", "w4", "no such token", "", {"content": "[PAD]"}, {"content": 3}, {"__type": "AddedToken"}),
    "unk_token": ("no such token", "", "w4", {"content": "x"}),
    "cls_token": ("no such token", ""),
    "sep_token": ("no such token", ""),
    "mask_token": ("no such token", "w4"),
    "bos_token": ("no such token", "", "w5"),
    "eos_token": ("no such token", "", "w5"),
    "padding_side": ("left", "right", "both", 1),
    "truncation_side": ("left", "middle"),
    "model_input_names": (["input_ids"], ["attention_mask"], [], ["pixel_values"], ["token_type_ids", "input_ids"],
        "x"),
    "added_tokens_decoder": ({"0": {"content": "w4"}}, {"9999": {"content": "zz"}}, {"x": {}},
        {"-1": {"content": "a"}}, []),
    "additional_special_tokens": (["a", "b"], ["w4"], [1], ["x"] * 3, "abc", [{"content": "x"}]),
    "extra_special_tokens": (["a", "b"], {"image": "x"}, [1], "abc"),
    "auto_map": ({"AutoTokenizer": ["x.X", None]}, {"AutoTokenizer": "a/b--x.X"}, "x"),
    "clean_up_tokenization_spaces": ("no",),
    "add_prefix_space": (True, "no"),
    "split_special_tokens": (True,),
    "chat_template": ("{{", "{% for %}", [{"name": "a"}], 3),
    "src_lang": ("de", 3),
    "tgt_lang": ("de",),
    "do_lower_case": (True, "no"),
    "backend": ("mistral", "none"),
    "is_local": (False,),
    "fast": (1,),
}  # fmt: skip
TOKENIZER_JSON_VALUES: Sequence[Any] = (
    {"type": "BPE", "vocab": {"a": 0}, "merges": []},
    {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]},
    {"type": "WordPiece", "vocab": {"a": 0}},
    {"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9},
    {"type": "WordLevel", "vocab": {}, "unk_token": "[UNK]"},
    {"type": "None"},
    {"type": "Lowercase"},
    {"type": "ByteLevel"},
    {"type": "Replace", "pattern": {"Regex": "(("}, "content": ""},
    {"type": "Sequence"},
    {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
    {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 9},
    {"strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
     "pad_token": "[PAD]"},
    {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": 0, "pad_id": 0, "pad_type_id": 0,
     "pad_token": "[PAD]"},
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False},
    96,
    97,
    10**6,
    2**32,
)  # fmt: skip
MORE_FILES: Mapping[str, Sequence[bytes]] = {
    "special_tokens_map.json": (b'{"pad_token": "zzz"}', b'{"pad_token": 3}', b"[]", b"{",
        b'{"cls_token": {"content": []}}'),
    "added_tokens.json": (b'{"zzz": 5}', b'{"zzz": 99999}', b'{"zzz": -1}', b'{"zzz": "a"}', b"[]", b"{"),
    "vocab.txt": (b"", b"a\nb\n", b"\xff\xfe", b"[PAD]\n" * 3),
    "vocab.json": (b"{}", b"[]", b'{"a": "b"}', b"{", b'{"a": -1}'),
    "merges.txt": (b"", b"a\n", b"a b c d\n", b"\xff"),
    "sentencepiece.bpe.model": (b"", b"\0\1\2", b"not a model"),
    "spiece.model": (b"", b"\0\1\2"),
    "source.spm": (b"", b"x"),
    "tokenizer.model": (b"", b"x"),
    "chat_template.jinja": (b"{{", b"\xff"),
    "generation_config.json": (
        b"{", b"[]", b'{"max_length": "x"}', b'{"num_beams": 0}', b'{"pad_token_id": 99999}', b'{"do_sample": 3}',
        b'{"max_new_tokens": -1}', b'{"decoder_start_token_id": 99999}', b'{"cache_implementation": "none"}',
        b'{"temperature": NaN}', b'{"eos_token_id": [[1]]}', b'{"transformers_version": 3}', b"null", b"\xff",
    ),
    "adapter_config.json": (
        b"{}", b"{", b'{"peft_type": "LORA"}', b'{"base_model_name_or_path": "x"}', b"[]",
        b'{"peft_type": "LORA", "base_model_name_or_path": "../x", "r": 0}', b'{"peft_type": "NONE"}',
    ),
    "adapter_model.safetensors": (b"", b"x" * 50),
    "pytorch_model.bin": (b"", b"\x80\x04."),
    "consolidated.safetensors": (b"", b"x" * 50),
    "model-00001-of-00002.safetensors": (b"", b"x" * 50),
    "model.safetensors.index.json": (
        b"{", b"{}", b"[]", b'{"weight_map": {}}', b'{"weight_map": []}', b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": "no.safetensors"}}', b'{"weight_map": {"a": "../x.safetensors"}}',
        b'{"weight_map": null}',
    ),
    "modeling_x.py": (b"raise SystemExit(3)",),
    "configuration_bert.py": (b"raise SystemExit(3)",),
    "training.json": (b"{", b"{}", b"[]", b'{"options": 3}'),
    "head.safetensors": (b"", b"x" * 50),
    "base.json": (b"{", b"{}"),
    "labels.json": (b"{", b"[]"),
    "proof.json": (b"{", b"[]", b"{}"),
    "mask.json": (b"{", b"[]"),
    "processor_config.json": (b"{", b"[]"),
    "preprocessor_config.json": (b"{", b"[]"),
}  # fmt: skip
NAME_LENGTHS = (256, 257, 300, 1000, 4096, 5000, 70_000)
NAMES = (
    "", " ", ".", "..", "/", "//", "~", "~nobody/x", "-", "--", "a//b", "a/b/c", "/a/b", "a/", "./", "../..", "\0",
    "a\0b",
    "a/b\0", "\n", "a\nb", "a\tb", "\ud800", "a/\udcff", "é/ü", "模型", "a" * 96, "a/" * 50, "a/" * 3000, "http://x/y",
    "https://huggingface.co/a/b", "hf://a/b", "file:///etc", "s3://a/b", "git@x:a/b", "C:\\models\\x", "\\\\host\\x",
    "/dev/null", "/dev/zero", "/dev/stdin", "/proc/self/mem", "/proc/self/fd/0", "/etc/passwd", "/root", "/dev/fd",
    "a..b/c", "a--b", "a/b.git", ".git/x", "datasets/a/b", "spaces/a/b", "a/b@main", "a/b:x", "a b/c d", "a/b?c=d",
    "e5-small-intents ", "E5-small-intents", "e5-small-intents/", "e5-small-intents\n", "e5_small_intents", "None",
    "null",
    "%00", "$HOME", "`id`", "*", "?", "[a]", "{x}", "a" * 97 + "/b", "0", "-1", "1e9", "\u202ea", "\ufeffx",
    "x" * 255,
)  # fmt: skip


@dataclass(frozen=True)
class SavedModel:
    """A model as it is on disk, and the task that it does.

    Attributes:
        family: Its name in `FAMILY_TASKS`.
        files: {name: content} of its folder.
        declaration: The path of its task.
    """

    family: str
    files: Mapping[str, bytes]
    declaration: Path


@dataclass(frozen=True)
class Change:
    """What is wrong with a folder.

    Attributes:
        wrong: In one line.
        files: {name: new content, or None for a file that is missing}.
        arrange: What else is done to the folder once it is written.
    """

    wrong: str
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    arrange: Callable[[Path], None] | None = None


def inputs(folder: Path, seed: int) -> Iterator[BadInput]:
    """Yield models that are valid but for one thing."""
    rng = random.Random(seed)
    models = list(_saved_models(folder))
    for number in count():
        model = rng.choice(models)
        if rng.random() < 0.06:
            yield _named_input(folder, model, _odd_name(rng))
            continue
        (make_change,) = rng.choices(list(CHANGES), list(CHANGES.values()))
        change = make_change(rng, model)
        if _changes_nothing(model, change):
            continue
        yield _folder_input(folder / f"model-{number}", model, change)


def _changes_nothing(model: SavedModel, change: Change) -> bool:
    """Whether nothing is wrong: whether each file still says the same."""
    if change.arrange is not None:
        return False
    for name, content in change.files.items():
        saved_content = model.files.get(name)
        if content == saved_content:
            continue
        if not (name.endswith(".json") and saved_content and content):
            return False
        if _json_or_bytes(content) != _json_or_bytes(saved_content):
            return False
    return True


def _json_or_bytes(data: bytes) -> Any:
    """The value of a JSON document, or the bytes themselves if they are none."""
    try:
        return json.loads(data)
    except ValueError:
        return data


def _saved_models(folder: Path) -> Iterator[SavedModel]:
    """Save a model of each family and its task, and check that headlab takes them as they are."""
    for family, kind in FAMILY_TASKS.items():
        columns, rows = TASKS[kind]
        declaration = folder / "tasks" / f"{kind}.toml"
        declaration.parent.mkdir(exist_ok=True)
        declaration.write_text(
            f'name = "{kind}"\nformat = "csv"\nfiles = "{kind}-{{split}}.csv"\nlanguages = ["en"]\n'
            f"columns = {{ {columns} }}\n"
        )
        table = "\n".join(rows) + "\n"
        for split in ("dev", "test"):
            (declaration.parent / f"{kind}-{split}.csv").write_text(table)
        model_folder = _save(folder / "good", family)
        files = {}
        for path in sorted(model_folder.iterdir()):
            files[path.name] = path.read_bytes()
        model = SavedModel(family, files, declaration)
        _read(str(model_folder), declaration)
        shutil.rmtree(model_folder)
        yield model


def _save(model_folder: Path, family: str) -> Path:
    if not family.startswith("shrunk "):
        return save_family(model_folder, family)
    model = random_model(family.removeprefix("shrunk "), tiny_tokenizer())
    shrunk = shrink_model(model, uneven_mask(model)).module.float()
    shrunk.save_pretrained(model_folder)
    tiny_tokenizer().save_pretrained(model_folder)
    return model_folder


def _read(name: str, declaration: Path) -> None:
    """Check, load and evaluate a model."""
    task = headlab.task(str(declaration))
    for fact in examine_model(name, task):
        if not fact.words.strip():
            raise ValueError(f"the check {fact.what} says nothing")
    headlab.evaluate(headlab.load(name, device="cpu"), task, size=EXAMPLES)


def _folder_input(input_folder: Path, model: SavedModel, change: Change) -> BadInput:
    def attempt(read_folder: Callable[[], Answer]) -> Answer:
        _write(input_folder, model, change)
        try:
            return read_folder()
        finally:
            shutil.rmtree(input_folder)

    title = f"{model.family}: {change.wrong}"
    content = f"{title}\n".encode("utf-8", "surrogatepass")
    for name, file_content in change.files.items():
        content += name.encode() + b"\0" + (file_content or b"")
    name_of_folder = str(input_folder)

    def read_here() -> Answer:
        return answer_to(partial(_read, name_of_folder, model.declaration))

    def read_by_command() -> Answer:
        return _command_answer(name_of_folder, model, input_folder.parent)

    return BadInput(
        title,
        content,
        partial(attempt, read_here),
        partial(attempt, read_by_command),
    )


def _command_answer(name: str, model: SavedModel, folder: Path) -> Answer:
    arguments = [
        f"--model={name}",
        f"--task={model.declaration}",
        f"--size={EXAMPLES}",
        "--device=cpu",
    ]
    return process_answer(["evaluate", *arguments], folder)


def _write(input_folder: Path, model: SavedModel, change: Change) -> None:
    input_folder.mkdir()
    for name, content in {**model.files, **change.files}.items():
        if content is not None:
            (input_folder / name).write_bytes(content)
    if change.arrange is not None:
        change.arrange(input_folder)


# Names instead of folders.


def _odd_name(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(NAMES)
    letters = rng.choice(("a", "é", "模", "a/", "/a", "../", ".", "-", "a b", "\ud800"))
    size = rng.choice(NAME_LENGTHS) + rng.randrange(50)
    start = rng.choice(("", "owner/", "./", "/tmp/"))
    return (start + letters * size)[:size]


def _named_input(folder: Path, model: SavedModel, name: str) -> BadInput:
    def read() -> None:
        """Take the name for a model's and for a task's, which must both be refused."""
        for fact in examine_model(name, None):
            if not fact.words.strip():
                raise ValueError(f"the check {fact.what} says nothing")
        try:
            headlab.task(name)
        except HeadlabError as error:
            if not error.code:
                raise ValueError("an error without a code") from error
        headlab.load(name, device="cpu")

    return BadInput(
        f"a model named {name!r:.80} ({len(name)} letters)",
        b"name\0" + name.encode("utf-8", "surrogatepass"),
        partial(answer_to, read),
        lambda: _command_answer(name, model, folder),
    )


# Keys of JSON files.


def _odd_value(rng: random.Random, values_of_key: Sequence[Any] = ()) -> Any:
    """A value that is wrong almost everywhere, or one of those that suit the key."""
    if values_of_key and rng.random() < 0.5:
        return rng.choice(values_of_key)
    return rng.choice((*ODD_VALUES, *PLAUSIBLE))


def _change_config(rng: random.Random, model: SavedModel) -> Change:
    config = json.loads(model.files[CONFIG])
    facts = config
    sealed_config = config.get("headlab_sealed")
    if isinstance(sealed_config, dict) and rng.random() < 0.4:
        facts = sealed_config
    keys = [*facts]
    if rng.random() < 0.8:
        keys += CONFIG_VALUES
    key = rng.choice(keys)
    if key in facts and rng.random() < 0.12:
        del facts[key]
        wrong = f"{CONFIG} without {key}"
    else:
        value = _odd_value(rng, CONFIG_VALUES.get(key, ()))
        facts[key] = value
        wrong = f"{CONFIG} with {key} = {value_text(value)}"
    return Change(wrong, {CONFIG: json_bytes(config)})


def _change_tokenizer_config(rng: random.Random, model: SavedModel) -> Change:
    facts = json.loads(model.files[TOKENIZER_CONFIG])
    key = rng.choice([*facts, *TOKENIZER_VALUES])
    if key in facts and rng.random() < 0.12:
        del facts[key]
        wrong = f"{TOKENIZER_CONFIG} without {key}"
    else:
        value = _odd_value(rng, TOKENIZER_VALUES.get(key, ()))
        facts[key] = value
        wrong = f"{TOKENIZER_CONFIG} with {key} = {value_text(value)}"
    return Change(wrong, {TOKENIZER_CONFIG: json_bytes(facts)})


def _change_tokenizer(rng: random.Random, model: SavedModel) -> Change:
    """Change a value somewhere in tokenizer.json, seldom one of its many words."""
    facts = json.loads(model.files[TOKENIZER])
    paths = list(value_paths(facts, ()))
    if rng.random() < 0.85:
        paths = [path for path in paths if "vocab" not in path[:-1]]
    path = rng.choice(paths)
    holder = facts
    for key in path[:-1]:
        holder = holder[key]
    path_text = ".".join(map(str, path))
    if rng.random() < 0.15:
        del holder[path[-1]]
        wrong = f"{TOKENIZER} without {path_text}"
    else:
        value = _odd_value(rng, TOKENIZER_JSON_VALUES)
        holder[path[-1]] = value
        wrong = f"{TOKENIZER} with {path_text} = {value_text(value)}"
    return Change(wrong, {TOKENIZER: json_bytes(facts)})


# Weights.


def _header_and_numbers(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its numbers."""
    (length,) = struct.unpack("<Q", data[:8])
    end_of_header = 8 + length
    header = json.loads(data[8:end_of_header])
    return header, data[end_of_header:]


def _weights_file(header: Any, numbers: bytes) -> bytes:
    text = json_bytes(header)
    return struct.pack("<Q", len(text)) + text + numbers


OTHER_DTYPES = (
    "F16",
    "BF16",
    "F64",
    "I8",
    "I32",
    "U8",
    "BOOL",
    "F8_E4M3",
    "F8_E8M0",
    "F4",
    "C64",
    "NONE",
    3,
    None,
)


def _change_header(rng: random.Random, model: SavedModel) -> Change:
    header, numbers = _header_and_numbers(model.files[WEIGHTS])
    name = rng.choice([key for key in header if key != "__metadata__"])
    fault = rng.randrange(8)
    if fault == 0:
        del header[name]
        wrong = f"without {name}"
    elif fault == 1:
        header[f"more.{name}"] = header[name]
        wrong = f"with {name} twice, once as more.{name}"
    elif fault == 2:
        new_name = rng.choice(
            (
                "module." + name,
                name.upper(),
                name + ".lora_A",
                "x" * 5000,
                "",
                name[1:],
                "\u202e",
            )
        )
        header[new_name] = header.pop(name)
        wrong = f"with {new_name!r:.80} for {name}"
    elif fault == 3:
        header[name]["dtype"] = rng.choice(OTHER_DTYPES)
        wrong = f"with dtype {header[name]['dtype']} for {name}"
    elif fault == 4:
        shape = header[name]["shape"]
        header[name]["shape"] = rng.choice(
            (
                shape[::-1],
                [*shape, 1],
                shape[1:],
                [],
                [0],
                [-1],
                [10**18],
                None,
                "x",
            )
        )
        wrong = f"with shape {header[name]['shape']} for {name}"
    elif fault == 5:
        begin, end = header[name]["data_offsets"]
        other_offsets = (
            [end, begin],
            [begin, end + 4],
            [begin],
            [0, 0],
            [-4, end],
            [begin, 2**64],
            None,
            [begin + 1, end + 1],
        )
        header[name]["data_offsets"] = rng.choice(other_offsets)
        wrong = f"with offsets {header[name]['data_offsets']} for {name}"
    elif fault == 6:
        value = _odd_value(rng)
        header["__metadata__"] = value
        wrong = f"with metadata {value_text(value)}"
    else:
        value = _odd_value(rng)
        header[name] = value
        wrong = f"with {value_text(value)} for {name}"
    return Change(f"{WEIGHTS} {wrong}", {WEIGHTS: _weights_file(header, numbers)})


def _change_numbers(rng: random.Random, model: SavedModel) -> Change:
    header, numbers = _header_and_numbers(model.files[WEIGHTS])
    name = rng.choice([key for key in header if key != "__metadata__"])
    begin, end = header[name]["data_offsets"]
    number = rng.choice((math.nan, math.inf, -math.inf, 3e38, 0.0, 1e-45))
    some_byte = begin + 4 * rng.randrange((end - begin) // 4)
    first_byte = rng.choice((begin, some_byte))
    end_byte = rng.choice((end, first_byte + 4))
    values = struct.pack("<f", number) * ((end_byte - first_byte) // 4)
    spoiled_numbers = numbers[:first_byte] + values + numbers[end_byte:]
    count = len(values) // 4
    position = (first_byte - begin) // 4
    wrong = f"{WEIGHTS} with {count} times {number} from number {position} in {name}"
    return Change(wrong, {WEIGHTS: _weights_file(header, spoiled_numbers)})


FIRST_WEIGHTS = "model-00001-of-00002.safetensors"
SECOND_WEIGHTS = "model-00002-of-00002.safetensors"


def _two_weights_files(
    rng: random.Random, weights: bytes
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The same weights in two files: the files by name, and the name of each weight's file."""
    header, numbers = _header_and_numbers(weights)
    names = sorted(key for key in header if key != "__metadata__")
    middle = rng.randrange(1, len(names))
    weight_map: dict[str, Any] = {}
    files = {}
    for file_name, names_of_file in (
        (FIRST_WEIGHTS, names[:middle]),
        (SECOND_WEIGHTS, names[middle:]),
    ):
        file_header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        file_numbers = b""
        for name in names_of_file:
            begin, end = header[name]["data_offsets"]
            offsets = [len(file_numbers), len(file_numbers) + end - begin]
            file_header[name] = header[name] | {"data_offsets": offsets}
            file_numbers += numbers[begin:end]
            weight_map[name] = file_name
        files[file_name] = _weights_file(file_header, file_numbers)
    return files, weight_map


def _divide_weights(rng: random.Random, model: SavedModel) -> Change:
    """Divide the weights into two files with an index, and spoil a file or the index.

    The file is missing or cut off, or the index names it wrongly.
    """
    files, weight_map = _two_weights_files(rng, model.files[WEIGHTS])
    total_size = len(model.files[WEIGHTS])
    index: Any = {
        "metadata": {"total_size": total_size},
        "weight_map": weight_map,
    }
    spoiled_file = rng.choice((FIRST_WEIGHTS, SECOND_WEIGHTS))
    size = rng.choice((None, None, rng.randrange(200)))
    if rng.random() < 0.3:
        content = None
        wrong = f"names {spoiled_file}, which is missing"
        if size is not None:
            content = files[spoiled_file][:size]
            wrong = f"names {spoiled_file}, of {size} bytes"
        changed_files: dict[str, bytes | None] = {**files, spoiled_file: content}
    else:
        wrong = _spoil_index(rng, index)
        changed_files = {**files}
    changed_files |= {INDEX: json_bytes(index), **NO_SINGLE_FILE}
    return Change(f"two weights files, index {wrong}", changed_files)


NO_SINGLE_FILE: Mapping[str, None] = {WEIGHTS: None}  # two files replace it


def _spoil_index(rng: random.Random, index: Any) -> str:
    """Change one thing of an index of weights in place, and say what."""
    weight_map = index["weight_map"]
    name = rng.choice(sorted(weight_map))
    fault = rng.randrange(5)
    if fault == 0:
        del weight_map[name]
        return f"does not name {name}"
    if fault == 1:
        wrong_file = rng.choice(
            ("", ".", "../x.safetensors", "/etc/passwd", "no.safetensors", CONFIG, 3, None)
        )
        weight_map[name] = wrong_file
        return f"has {name} in {wrong_file!r}"
    if fault == 2:
        other_files = {FIRST_WEIGHTS: SECOND_WEIGHTS, SECOND_WEIGHTS: FIRST_WEIGHTS}
        weight_map[name] = other_files[weight_map[name]]
        return f"has {name} in the other file"
    if fault == 3:
        weight_map[f"more.{name}"] = FIRST_WEIGHTS
        return f"has more.{name}, which no file has"
    key = rng.choice(("metadata", "weight_map"))
    index[key] = _odd_value(rng)
    return f"has {value_text(index[key])} for {key}"


# Bytes and files.


def _spoil_bytes(rng: random.Random, model: SavedModel) -> Change:
    name = rng.choice([CONFIG, CONFIG, TOKENIZER, TOKENIZER_CONFIG, WEIGHTS, *model.files])
    data = spoil(rng, [model.files[name]])
    return Change(f"{name} with spoiled bytes", {name: data})


def _cut_file(rng: random.Random, model: SavedModel) -> Change:
    name = rng.choice([*model.files])
    content = model.files[name]
    some_size = rng.randrange(len(content))
    size = rng.choice((0, 1, 7, 8, 9, some_size))
    return Change(f"{name} of {size} bytes", {name: content[:size]})


def _add_file(rng: random.Random, model: SavedModel) -> Change:
    name = rng.choice([*MORE_FILES])
    content = rng.choice(MORE_FILES[name])
    return Change(f"{name} with {content!r:.60}", {name: content})


def _arrange_file(rng: random.Random, model: SavedModel) -> Change:
    """Put something else in a file's place, or give the file another name."""
    name = rng.choice([*model.files, *model.files, *MORE_FILES])
    arrangements = [*ARRANGEMENTS]
    # A file that the model does not have cannot get another name.
    if name in model.files:
        arrangements += CHANGED_NAMES
    arrangement = rng.choice(arrangements)

    def arrange(input_folder: Path) -> None:
        path = input_folder / name
        content = path.read_bytes() if path.exists() else b"{}"
        path.unlink(missing_ok=True)
        (ARRANGEMENTS | CHANGED_NAMES)[arrangement](path, content)

    return Change(f"{name} {arrangement}", {}, arrange)


def _to_folder(path: Path, _content: bytes) -> None:
    path.mkdir()


def _to_full_folder(path: Path, content: bytes) -> None:
    path.mkdir()
    (path / path.name).write_bytes(content)


def _to_nothing(_path: Path, _content: bytes) -> None:
    """Leave the file out."""


def _to_link(target: str, path: Path, _content: bytes) -> None:
    path.symlink_to(target)


def _to_loop(path: Path, _content: bytes) -> None:
    path.symlink_to(path.name)


def _to_pipe(path: Path, _content: bytes) -> None:
    os.mkfifo(path)


def _write_renamed(new_name: Callable[[str], str], path: Path, content: bytes) -> None:
    path.with_name(new_name(path.name)).write_bytes(content)


ARRANGEMENTS: dict[str, Callable[[Path, bytes], None]] = {
    "is a folder": _to_folder,
    "is a folder with the file in it": _to_full_folder,
    "is a link to nothing": partial(_to_link, "no-such-file"),
    "is a link to itself": _to_loop,
    "is a link to its folder": partial(_to_link, "."),
    "is a link to /dev/null": partial(_to_link, "/dev/null"),
    "is a link to /dev/zero": partial(_to_link, "/dev/zero"),
    "is a link to another file": partial(_to_link, CONFIG),
    "is a pipe": _to_pipe,
}
CHANGED_NAMES: dict[str, Callable[[Path, bytes], None]] = {
    "is missing": _to_nothing,
    "has a capital name": partial(_write_renamed, str.upper),
    "has a name with an odd letter": partial(_write_renamed, lambda name: f"\u202e{name}"),
    "has a name with a space": partial(_write_renamed, lambda name: f"{name} "),
    "has a name of other bytes": partial(_write_renamed, lambda name: f"\udcff{name}"),
    "has another ending": partial(_write_renamed, lambda name: f"{name}.bin"),
}

# The ways to spoil a folder, and how often each is drawn.
CHANGES: Mapping[Callable[[random.Random, SavedModel], Change], int] = {
    _change_config: 40,
    _change_tokenizer_config: 12,
    _change_tokenizer: 14,
    _change_header: 8,
    _change_numbers: 4,
    _divide_weights: 4,
    _spoil_bytes: 8,
    _cut_file: 2,
    _add_file: 6,
    _arrange_file: 6,
}
