"""Folders that are not as transformers wrote them, and names of no model: each is refused in a sentence."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub.utils as hub_client
import numpy as np
import pytest
import torch
import transformers as hf
from support.expected_errors import expect_error, raises
from support.saved_models import save_family, save_model
from support.tiny_models import VOCAB
from support.tiny_task import tiny_task, tiny_tokenizer
from transformers import AutoConfig

import headlab
from headlab.core import HeadlabError
from headlab.evaluation import Evaluator, read_inputs
from headlab.hooks import tokens_version
from headlab.models.files import hub_folder, hub_shapes, hub_sizes
from headlab.models.load import examine_model
from headlab.report.build import find_results
from headlab.results import Store
from headlab.training.output import find_base

FAMILIES = ("bert", "gpt2", "marian", "t5")


@pytest.fixture(scope="module")
def saved_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a tiny model of some families, by family."""
    folder = tmp_path_factory.mktemp("saved")
    return {family: save_family(folder / family, family) for family in FAMILIES}


@pytest.fixture
def copy_model(saved_folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies the folder of a family, so that a test may spoil the copy."""
    return lambda family: Path(shutil.copytree(saved_folders[family], tmp_path / family))


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def refusals(folder: Path) -> list[str]:
    """What the check of a model says is wrong with it."""
    return [fact.words for fact in examine_model(str(folder), tiny_task()) if fact.ok is False]


def refusals_of_loading(folder: Path) -> list[str]:
    """What the check of a model without a task says is wrong with it."""
    return [fact.words for fact in examine_model(str(folder)) if fact.ok is False]


@pytest.mark.parametrize("letters", [255, 256, 300, 5_000, 70_000])
@pytest.mark.parametrize("beginning", ["", "owner/", "./", "/tmp/"])
def test_reported_19_a_name_of_many_letters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, letters: int, beginning: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = beginning + "a" * letters
    for load_by_name in (headlab.load, find_base):
        with raises("model.unknown") as caught:
            load_by_name(name)
        assert len(str(caught.value)) < 400
    (fact,) = examine_model(name)
    assert fact.ok is False
    with raises("task.unknown"):
        headlab.task(name)
    with raises("report.unknown" if beginning else "report.key_unknown"):
        find_results([name], Store(tmp_path))


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"num_hidden_layers": 10**9}, "model.unreadable"),
        ({"num_labels": 10**9}, "model.unreadable"),
        ({"text_config": {"num_layers": 10**12}}, "model.unreadable"),
        ({"hidden_size": 10**9}, "model.weights_missing"),
        ({"vocab_size": 10**9}, "model.weights_missing"),
        ({"max_position_embeddings": 10**9}, "model.weights_missing"),
        ({"num_hidden_layers": 20_000}, "model.weights_missing"),
        ({"architectures": -100}, "model.class_unknown"),
        ({"model_type": "headlab-shrunk-none"}, "model.type_unknown"),
        ({"hidden_size": 10**400}, "model.unreadable"),
    ],
)
def test_reported_19_numbers_that_no_model_has(
    copy_model: Callable[[str], Path], values: dict[str, Any], code: str
) -> None:
    """The refusal takes neither a list of a thousand million names nor weights of that width."""
    folder = copy_model("bert")
    change_json(folder / "config.json", **values)
    with raises(code):
        headlab.load(folder, device="cpu")
    assert refusals(folder)


class OddError(Exception):
    """An error of a kind that no list of errors names."""


class PanicException(BaseException):
    """Named like what packages written in Rust raise, which is no Exception."""


@pytest.mark.parametrize(
    "error", [OddError("odd"), PanicException("panicked"), AssertionError(), StopIteration()]
)
def test_reported_19_whatever_a_library_raises(
    copy_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    folder = copy_model("bert")

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoConfig, "from_pretrained", fail)
    with raises("model.unreadable", str(error)):
        headlab.load(folder, device="cpu")
    assert refusals(folder)


def test_an_interrupted_load_stays_interrupted(
    copy_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(AutoConfig, "from_pretrained", interrupt)
    with pytest.raises(KeyboardInterrupt):
        headlab.load(copy_model("bert"), device="cpu")


@pytest.mark.parametrize(
    "name", ["added_tokens.json", "merges.txt", "spiece.model", "chat_template.jinja"]
)
def test_reported_19_files_that_never_end(copy_model: Callable[[str], Path], name: str) -> None:
    folder = copy_model("gpt2")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with raises("model.not_a_file", name):
        headlab.load(folder, device="cpu")
    assert refusals(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with raises("model.not_a_file", name):
        headlab.load(folder, device="cpu")


def test_reported_19_a_file_whose_name_is_not_text(copy_model: Callable[[str], Path]) -> None:
    folder = copy_model("bert")
    (folder / "\udcffmore.safetensors").write_bytes(b"")
    with raises("model.file_name_not_text"):
        headlab.load(folder, device="cpu")
    assert refusals(folder)


def test_reported_19_a_tokenizer_class_that_is_none(copy_model: Callable[[str], Path]) -> None:
    folder = copy_model("t5")
    change_json(folder / "tokenizer_config.json", tokenizer_class="BertModel")
    with raises("tokenizer.unreadable", "BertModel"):
        headlab.load(folder, device="cpu")
    assert refusals(folder)


def test_reported_19_a_tokenizer_that_names_no_inputs(copy_model: Callable[[str], Path]) -> None:
    folder = copy_model("t5")
    change_json(folder / "tokenizer_config.json", model_input_names=[])
    with raises("tokenizer.unreadable", "model_input_names"):
        headlab.load(folder, device="cpu")


def test_reported_19_a_tokenizer_that_fails_at_the_first_text(
    copy_model: Callable[[str], Path],
) -> None:
    """The package of tokenizers panics, which is no Exception, and does so only after loading."""
    folder = copy_model("bert")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"]["single"][2]["SpecialToken"]["id"] = "zero"
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = headlab.load(folder, device="cpu")
    with raises("tokenizer.unusable", "bert"):
        Evaluator(model, tiny_task(), "xx")


def test_reported_19_a_decoder_that_begins_with_nothing(copy_model: Callable[[str], Path]) -> None:
    folder = copy_model("t5")
    change_json(folder / "config.json", decoder_start_token_id=None)
    model = headlab.load(folder, device="cpu")
    examples = [headlab.tasks.Example("a", "w4 w5", target="w6")]
    with raises("model.decoder_start_missing"):
        read_inputs(model, tiny_task(), examples, "xx").tensors(np.array([0]))


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the header of a safetensors file: 8 bytes of its length, then its JSON."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    new_header = json.dumps(header).encode()
    weights = content[8 + length :]
    path.write_bytes(struct.pack("<Q", len(new_header)) + new_header + weights)


def test_reported_19_weights_stored_as_integers_are_not_taken_for_numbers(
    copy_model: Callable[[str], Path],
) -> None:
    folder = copy_model("bert")
    weight = "bert.encoder.layer.1.attention.self.key.bias"
    rewrite_header(folder / "model.safetensors", lambda header: header[weight].update(dtype="I32"))
    with raises("model.weights_of_integers", weight, "I32"):
        headlab.load(folder, device="cpu")


def test_reported_19_a_model_type_of_another_class(copy_model: Callable[[str], Path]) -> None:
    """The class would take the other family's values, and give other answers without a word."""
    folder = copy_model("marian")
    change_json(folder / "config.json", model_type="roberta")
    with raises("model.type_of_another_class", "MarianMTModel", "roberta", "marian"):
        headlab.load(folder, device="cpu")
    assert refusals(folder)


def test_reported_19_a_class_that_serves_several_model_types(tmp_path: Path) -> None:
    """transformers loads InternLM3 with Llama's class, which reads none of the settings that the type lacks."""
    config = hf.InternLM3Config(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        pad_token_id=0,
    )
    module = hf.AutoModelForCausalLM.from_config(config)
    assert isinstance(module, hf.LlamaForCausalLM)
    folder = save_model(tmp_path / "internlm3", module, tiny_tokenizer())
    assert headlab.load(folder, device="cpu").grid.size == 8
    assert not refusals_of_loading(folder)


def test_reported_19_a_tiny_model_with_large_masks_is_no_larger_than_its_weights(
    tmp_path: Path,
) -> None:
    """Its layers hold masks of all pairs of positions, which are in no file."""
    config = hf.GPTNeoConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_layers=4,
        num_heads=4,
        attention_types=[[["global", "local"], 2]],
        max_position_embeddings=2048,
        intermediate_size=32,
    )
    folder = save_model(tmp_path / "gpt-neo", hf.GPTNeoForCausalLM(config), tiny_tokenizer())
    assert headlab.load(folder, device="cpu").grid.size == 16
    assert not refusals_of_loading(folder)
    change_json(folder / "config.json", max_position_embeddings=10**6)
    with raises("model.weights_missing", 10**6):
        headlab.load(folder, device="cpu")


def test_a_model_type_of_a_family_with_the_same_configuration_is_read(tmp_path: Path) -> None:
    """Some published checkpoints name one of two families that differ in nothing."""
    folder = save_family(tmp_path / "xlm-roberta", "xlm-roberta")
    evaluations = headlab.evaluate(headlab.load(folder, device="cpu"), tiny_task(), size=4)
    change_json(folder / "config.json", model_type="roberta")
    evaluations_of_other_type = headlab.evaluate(
        headlab.load(folder, device="cpu"), tiny_task(), size=4
    )
    assert str(evaluations_of_other_type) == str(evaluations)


@pytest.mark.parametrize("family", ["bert", "marian"])
def test_reported_19_a_tokenizer_that_does_not_say_what_is_padding(
    copy_model: Callable[[str], Path], family: str
) -> None:
    """A model that attended to padding would give an example other answers in another batch."""
    folder = copy_model(family)
    task = tiny_task()
    examples = task.examples("xx", "dev", 6)
    if family == "marian":
        examples = tuple(
            headlab.tasks.Example(example.id, example.text, target="w6 w7") for example in examples
        )
    model_with_mask = headlab.load(folder, device="cpu")
    assert tokens_version(model_with_mask, examples) == {}
    expected_inputs = read_inputs(model_with_mask, task, examples, "xx")
    change_json(folder / "tokenizer_config.json", model_input_names=["input_ids"])
    model = headlab.load(folder, device="cpu")
    inputs = read_inputs(model, task, examples, "xx")
    rows = np.arange(6)
    with torch.no_grad():
        logits_in_one_batch = inputs.logits(inputs.tensors(rows))
        torch.testing.assert_close(
            logits_in_one_batch, expected_inputs.logits(expected_inputs.tensors(rows))
        )
        logits_one_by_one = torch.cat([inputs.logits(inputs.tensors(rows[[row]])) for row in rows])
    torch.testing.assert_close(logits_in_one_batch, logits_one_by_one, atol=1e-5, rtol=1e-4)
    # kept apart from earlier results
    assert tokens_version(model, examples) == {"attention_mask": True}


HUB_FAILURES = [
    httpx.ReadTimeout("slow"),
    # errors of the client that the hub's package brings
    hub_client.httpx.ReadTimeout("slow"),  # type: ignore[attr-defined]
    hub_client.httpx.RemoteProtocolError("torn"),  # type: ignore[attr-defined]
    ConnectionResetError(104, "reset"),
    TimeoutError("slow"),
    RuntimeError("from the package that stores the files"),
    ValueError("no header"),
]


@pytest.mark.parametrize(
    "error", HUB_FAILURES, ids=lambda error: f"{type(error).__module__}.{type(error).__name__}"
)
def test_reported_19_every_failure_of_the_hub(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", fail)
    monkeypatch.setattr("huggingface_hub.get_safetensors_metadata", fail)
    with raises("hub.fetch_failed", "someone/something", type(error).__name__):
        hub_folder("someone/something", None)
    assert hub_sizes("someone/something") == {}
    assert hub_shapes("someone/something") is None


def test_a_disk_that_takes_no_files_is_no_failure_of_the_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    with pytest.raises(HeadlabError) as caught:
        hub_folder("someone/something", None)
    expect_error(caught.value, "file.unwritable")
