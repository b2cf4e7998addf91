"""How often a cycle of draws copies between processor and device: not once a layer, nor once a row."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from support.pretended_devices import copies_of_a_cycle
from support.saved_models import save
from support.tiny_models import FAMILIES, NAMES
from support.tiny_task import tiny_tokenizer
from transformers import BertConfig, BertForSequenceClassification

# Tokens, targets, gates, rows that branch and where they join; and back: values, slopes and margins.
MOST = {"to the device": 9, "to the processor": 7}


def save_bert(folder: Path, layers: int) -> Path:
    config = BertConfig(**FAMILIES["bert"].options | {"num_hidden_layers": layers} | NAMES)
    return save(folder, BertForSequenceClassification(config), tiny_tokenizer())


def test_reported_43_copies_depend_neither_on_layers_nor_on_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # accelerate takes any device as the one of inputs: the first
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    small = save_bert(tmp_path / "small", 2)
    deep = save_bert(tmp_path / "deep", 6)
    counts = {}
    for name, folder, examples in (("few", small, 4), ("many", small, 16), ("deep", deep, 4)):
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            counts[name] = process.submit(copies_of_a_cycle, folder, examples).result()
    assert counts["few"] == counts["many"] == counts["deep"]
    for question, copies in counts["few"].items():
        for direction, most in MOST.items():
            assert 0 < copies[direction] <= most, (question, copies)
