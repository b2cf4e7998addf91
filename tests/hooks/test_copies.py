"""How often a cycle of draws copies between processor and device."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from support.pretended_devices import copies_of_a_cycle
from support.saved_models import save_model
from support.tiny_models import FAMILIES, LABEL_OPTIONS
from support.tiny_task import tiny_tokenizer
from transformers import BertConfig, BertForSequenceClassification

# Copied to the device: tokens, targets, gates, rows that branch and where they join.
# Copied back: values, slopes and margins.
MAX_COPIES = {"to the device": 9, "to the processor": 7}


def save_bert(folder: Path, layers: int) -> Path:
    options = FAMILIES["bert"].options | {"num_hidden_layers": layers} | LABEL_OPTIONS
    module = BertForSequenceClassification(BertConfig(**options))
    return save_model(folder, module, tiny_tokenizer())


def test_reported_43_copies_depend_neither_on_layers_nor_on_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Accelerate picks the device of the inputs out of a set; with this seed it is the first device.
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    shallow_model = save_bert(tmp_path / "small", 2)
    deep_model = save_bert(tmp_path / "deep", 6)

    def copies(folder: Path, examples: int) -> dict[str, dict[str, int]]:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            return process.submit(copies_of_a_cycle, folder, examples).result()

    copies_by_question = copies(shallow_model, 4)
    assert copies(shallow_model, 16) == copies_by_question
    assert copies(deep_model, 4) == copies_by_question
    for question, copies_of_question in copies_by_question.items():
        for direction, max_copies in MAX_COPIES.items():
            copy_count = copies_of_question[direction]
            assert 0 < copy_count <= max_copies, (question, copies_of_question)
