"""An environment in which headlab is not installed reads what `headlab export` writes.

A new environment gets torch, transformers, sentence-transformers and llama.cpp, in the versions of
the requirements files. As for these, PIP_EXTRA_INDEX_URL names an index of torch without CUDA.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.exports import export
from support.llama_cpp import ask_llama_cpp, greedy_continuation, with_llama_cpp
from support.saved_models import save_model
from support.shrunk_families import random_model, uneven_mask
from support.tiny_llama import UNEVEN, tiny_llama, without_groups
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.cli.run import main
from headlab.hooks import Model, gated
from headlab.masks import Mask, load_mask

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-soak.txt")
SENTENCE_TRANSFORMERS = "sentence-transformers==6.2.0"
"""What docs/export.md speaks of; headlab itself does not need it, so no lock has it."""
MODEL = "e5-small-intents"
LANGUAGES = ("de", "th")
TEXTS_A_LANGUAGE = 8
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 0}

CLASSIFY = """
import importlib.util, json, sys
assert importlib.util.find_spec("headlab") is None
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
folder, texts = sys.argv[1], json.loads(sys.argv[2])
module = AutoModelForSequenceClassification.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.inference_mode():
    logits = [module(**tokenizer(text, return_tensors="pt")).logits[0].tolist() for text in texts]
classify = pipeline("text-classification", model=folder, device="cpu")
print(json.dumps({"logits": logits, "answers": [classify(text)[0] for text in texts]}))
"""
SAVE_SENTENCE_MODEL = """
import importlib.util, sys
assert importlib.util.find_spec("headlab") is None
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Pooling, Transformer
source, target = sys.argv[1:]
words = Transformer(source)
SentenceTransformer(modules=[words, Pooling(24, "mean")], device="cpu").save(target)
"""
EMBED = """
import importlib.util, json, sys
assert importlib.util.find_spec("headlab") is None
from sentence_transformers import SentenceTransformer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps(SentenceTransformer(folder, device="cpu").encode(texts).tolist()))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of the environment without headlab."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    constraints = [word for lock in LOCKS for word in ("-c", str(ROOT / lock))]
    packages = ["torch", "transformers", "safetensors", SENTENCE_TRANSFORMERS]
    if find_spec("xllamacpp") is not None:  # it has no wheel for some machines
        packages.append("xllamacpp")
    # -I: what PYTHONPATH names is out of reach, and so is the current folder.
    install = [python, "-I", "-m", "pip", "install", "--quiet", *constraints, *packages]
    subprocess.run(install, check=True)
    yield python
    shutil.rmtree(folder)  # it has more than a gigabyte


def answer_of(python: Path, script: str, *arguments: str) -> Any:
    """What a script prints as JSON in the environment without headlab, and without a network."""
    run = subprocess.run(
        [python, "-I", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout or "null")


@pytest.fixture(scope="module")
def model() -> Model:
    return headlab.load(MODEL, device="cpu")


@pytest.fixture(scope="module")
def mask_file(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mask without a third of the heads, and without any of the third layer."""
    is_kept = np.arange(model.grid.size) % 3 > 0
    is_kept[24:36] = False
    file = tmp_path_factory.mktemp("mask") / "mask.json"
    Mask(model.grid, is_kept, model.identity()).save(file)
    return file


def exported(mask_file: Path, out: Path, *arguments: str) -> Path:
    """The folder that `headlab export --as folder` writes of the embedded model."""
    words = ["export", "--model", MODEL, "--mask", str(mask_file), "--as", "folder"]
    assert main([*words, "--size", "16", "--out", str(out), "--device", "cpu", *arguments]) == 0
    return out


def assert_classifies(python: Path, folder: Path, model: Model, mask: Mask) -> None:
    """Stock transformers gives the masked model's logits and answers, in both languages."""
    task = headlab.task("intents")
    texts = [
        example.text
        for language in LANGUAGES
        for example in task.examples(language, "dev", TEXTS_A_LANGUAGE)
    ]
    answer = answer_of(python, CLASSIFY, str(folder), json.dumps(texts))
    untouched_logits, masked_logits = logits_of(model, texts), logits_of(model, texts, mask)
    assert (untouched_logits - masked_logits).abs().max() > 0.01
    torch.testing.assert_close(torch.tensor(answer["logits"]), masked_logits, **CLOSE)
    probabilities = masked_logits.softmax(dim=1)
    labels = [model.module.config.id2label[int(row.argmax())] for row in masked_logits]
    assert [row["label"] for row in answer["answers"]] == labels
    scores = torch.tensor([row["score"] for row in answer["answers"]])
    torch.testing.assert_close(scores, probabilities.max(dim=1).values, **CLOSE)


def logits_of(model: Model, texts: Sequence[str], mask: Mask | None = None) -> torch.Tensor:
    """Logits of each text, [text, label], under a mask if one is given."""
    if mask is not None:
        with gated(model, mask):
            return logits_of(model, texts)
    with torch.inference_mode():
        rows = [
            model.module(**model.tokenizer(text, return_tensors="pt")).logits[0] for text in texts
        ]
    return torch.stack(rows)


def test_a_plain_folder_gives_the_masked_models_logits_and_answers(
    python, model, mask_file, tmp_path
):
    folder = exported(mask_file, tmp_path / "plain")
    assert_classifies(python, folder, model, load_mask(mask_file))


def test_a_folder_with_the_vocabulary_of_two_languages_does_too(python, model, mask_file, tmp_path):
    cut = ("--languages", ",".join(LANGUAGES), "--vocabulary", "cut", "--test-size", "16")
    folder = exported(mask_file, tmp_path / "german-thai", *cut)
    proof = json.loads((folder / "proof.json").read_text("utf-8"))
    assert proof["vocabulary"]["pieces_after"] < proof["vocabulary"]["pieces_before"] / 4
    assert_classifies(python, folder, model, load_mask(mask_file))


def test_sentence_transformers_gives_the_masked_models_embedding(python, tmp_path, capsys):
    words = random_model("bert-model", tiny_tokenizer(), dtype=torch.float32)
    save_model(tmp_path / "words", words.module, tiny_tokenizer())
    answer_of(python, SAVE_SENTENCE_MODEL, str(tmp_path / "words"), str(tmp_path / "model"))
    model = headlab.load(str(tmp_path / "model"), device="cpu")
    mask = uneven_mask(model)
    mask.save(tmp_path / "mask.json")
    code, _, stderr = export(tmp_path, capsys, "folder")
    assert code == 0, stderr
    texts = ["w5 w6 w7", "w90 w8"]
    embeddings = answer_of(python, EMBED, str(tmp_path / "out"), json.dumps(texts))
    untouched = answer_of(python, EMBED, str(tmp_path / "model"), json.dumps(texts))
    expected = embeddings_of(model, texts, mask)
    torch.testing.assert_close(torch.tensor(embeddings), expected, **CLOSE)
    torch.testing.assert_close(torch.tensor(untouched), embeddings_of(model, texts), **CLOSE)
    assert (torch.tensor(untouched) - expected).abs().max() > 0.01


def embeddings_of(model: Model, texts: Sequence[str], mask: Mask | None = None) -> torch.Tensor:
    """The mean of each text's last hidden states, [text, width], under a mask if one is given."""
    if mask is not None:
        with gated(model, mask):
            return embeddings_of(model, texts)
    with torch.inference_mode():
        rows = [
            model.module(**model.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            for text in texts
        ]
    return torch.stack([row.mean(dim=0) for row in rows])


@with_llama_cpp
def test_llama_cpp_gives_the_masked_models_tokens(python, tmp_path, capsys):
    pytest.importorskip("gguf", reason="gguf is not installed; `make decoder` installs it")
    tiny = tiny_llama()
    save_model(tmp_path / "model", tiny.module, tiny.tokenizer)
    model = headlab.load(str(tmp_path / "model"), device="cpu")
    mask = without_groups(model, UNEVEN)
    mask.save(tmp_path / "mask.json")
    code, _, stderr = export(tmp_path, capsys, "gguf")
    assert code == 0, stderr
    rng = np.random.default_rng(0)
    prompts = rng.integers(2, model.module.config.vocab_size, (6, 12)).tolist()
    file = tmp_path / "out" / "model.gguf"
    answer = ask_llama_cpp(file, tmp_path, prompts=prompts, count=12, python=str(python))
    compared_tokens = 0
    for prompt, continuation in zip(prompts, answer.continuations, strict=True):
        expected = greedy_continuation(model, mask, prompt, 12)
        assert continuation[: len(expected)] == expected
        compared_tokens += len(expected)
    assert compared_tokens > 36
