"""Masks of any players built into folders: small ones, plain ones, ONNX files; all proved."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.players_by_hand import neuron_groups, playing
from support.shrunk_families import OTHER_FAMILIES, SHRINKABLE, logits, mask_of, random_model
from support.tiny_models import tiny_batch, tiny_model
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.hooks import Model, gated, make_gateable, parts_of, with_players
from headlab.masks import Mask, full_mask, load_mask
from headlab.models.checkpoint import Checkpoint
from headlab.shrink import load_shrunk, parameters_of, shrink_model, silence_model
from headlab.shrink.folder import ONNX_PACKAGES, write_shrunk

CLOSE: dict[str, Any] = {"atol": 1e-9, "rtol": 0}
PLAIN = """
import importlib.util, json, sys
sys.path[:] = [path for path in sys.path if "headlab" not in path]
import torch, transformers
folder, kind, batch = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
module = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float64).eval()
assert "headlab" not in sys.modules
with torch.inference_mode():
    output = module(**{name: torch.tensor(rows) for name, rows in batch.items()})
print(json.dumps([output.logits.tolist(), sum(p.numel() for p in module.parameters())]))
"""


def some_closed(model: Model, seed: int = 0) -> Mask:
    """A mask that leaves layers uneven: about half of the players, and whole layers but one."""
    kept = np.random.default_rng(seed).random(model.grid.size) < 0.6
    for index, player in enumerate(model.grid.heads):
        if model.grid.kind_of(player) == "layers":
            kept[index] = player.layer != 1
        elif player.layer == 0:
            kept[index] = player.head != 0
    return mask_of(model, kept)


def without(model: Model, *closed: str) -> Mask:
    """A mask that closes the players of these names."""
    names = [str(player) for player in model.grid.heads]
    assert set(closed) <= set(names)
    return mask_of(model, [name not in closed for name in names])


def masked_logits(model: Model, mask: Mask) -> torch.Tensor:
    with gated(model, mask):
        return logits(model.module, tiny_batch(model.module))


def written(model: Model, mask: Mask, folder: Path, **options: Any) -> Any:
    model.module.config.architectures = [type(model.module).__name__]
    batches = [tiny_batch(model.module)]
    shrunk = options.pop("shrunk", None) or shrink_model(model, mask)
    return write_shrunk(model, shrunk, folder, batches, compared_on={"task": None}, **options)


def tiny(family: str, players: str) -> Model:
    return playing(random_model(family, tiny_tokenizer()), players)


# What is left answers as the masked model, from memory and from its folder.


@pytest.mark.parametrize("family", [*SHRINKABLE, *OTHER_FAMILIES])
@pytest.mark.parametrize("players", ["heads,neurons:2", "attention,feed-forward", "layers"])
def test_what_is_left_answers_as_the_masked_model(family: str, players: str) -> None:
    model = playing(random_model(family), players)
    mask = some_closed(model)
    untouched = logits(model.module, tiny_batch(model.module))
    want = masked_logits(model, mask)
    assert not torch.allclose(untouched, want, atol=1e-3)
    shrunk = shrink_model(model, mask)
    got = logits(shrunk.module, tiny_batch(model.module))
    torch.testing.assert_close(got, want, **CLOSE)
    assert shrunk.parameters_after == parameters_of(shrunk.module) < shrunk.parameters_before


@pytest.mark.parametrize(
    ("family", "players"),
    [
        ("bert", "heads,neurons:2"),
        ("xlm-roberta", "neurons:2"),
        ("distilbert", "attention,neurons:2,layers"),
        ("modernbert", "heads,neurons:2"),
        ("gpt2-lm", "feed-forward"),
        ("llama-lm", "kv-groups,neurons:2"),
        ("qwen2", "kv-groups,layers,neurons:2"),
        ("gemma2", "heads,neurons:2"),
        ("bart", "heads,neurons:2,layers"),
        ("t5", "neurons:2,layers"),
    ],
)
def test_a_folder_is_read_back_with_what_is_left(family: str, players: str, tmp_path: Path) -> None:
    model = tiny(family, players)
    mask = some_closed(model)
    want = masked_logits(model, mask)
    folder = tmp_path / "m"
    record = written(model, mask, folder).record
    proof = json.loads((folder / "proof.json").read_text())
    module = load_shrunk(folder)
    got = logits(module, tiny_batch(model.module))
    torch.testing.assert_close(got, want, **CLOSE)
    assert proof["parameters_before"] == parameters_of(model.module)
    assert proof["parameters_after"] == parameters_of(module) == record["parameters_after"]
    assert proof["players"]["switched"] == str(model.players)
    assert proof["players"]["removed"] == [list(player) for player in mask.removed]
    assert load_mask(folder / "mask.json").digest == mask.digest
    again = headlab.load(str(folder), dtype="float64")
    assert again.fingerprint == proof["fingerprint"]
    heads_left = proof["heads_before"] - proof["heads_removed"]
    assert again.grid.size == heads_left
    if proof["players"]["neurons_removed"]:
        neurons_left = proof["players"]["neurons_before"] - proof["players"]["neurons_removed"]
        assert sum(parts_of(again).neurons) == neurons_left
    card = (folder / "README.md").read_text()
    assert "neurons" in card or "layers" in card
    assert f"{proof['parameters_after']:,}" in card


def test_counts_are_those_made_by_hand(tmp_path: Path) -> None:
    """States are 24 wide, heads 6, and layers have 32 neurons in two groups."""
    model = tiny("bert", "heads,neurons:2,layers")
    mask = without(model, "0.1", "encoder-neurons 0.1", "encoder-layers 2.0", "2.3")
    proof = written(model, mask, tmp_path / "m").record
    head = 4 * 24 * 6 + 3 * 6
    neurons = 16 * (24 + 1 + 24)
    layer = 4 * (24 * 24 + 24) + 32 * (24 + 1 + 24) + 24 + 4 * 24
    assert proof["parameters_before"] - proof["parameters_after"] == head + neurons + layer
    assert (proof["heads_before"], proof["heads_removed"]) == (12, 5)
    players = proof["players"]
    assert (players["neurons_before"], players["neurons_removed"]) == (96, 48)
    assert (players["layers_before"], players["layers_removed"]) == (3, 1)
    assert players["before"] == 12 + 6 + 3
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["headlab_neurons"] == {"encoder": [16, 32]}
    assert config["headlab_heads"] == {"encoder": [[0, 2, 3], [0, 1, 2, 3]]}


# Folders that transformers reads alone.

EVEN = [
    ("bert", "neurons:2", "BertForSequenceClassification"),
    ("xlm-roberta", "layers,neurons:2", "AutoModelForSequenceClassification"),
    ("distilbert", "neurons:2", "DistilBertForSequenceClassification"),
    ("modernbert", "neurons:2", "AutoModelForSequenceClassification"),
    ("gpt2", "neurons:2", "GPT2ForSequenceClassification"),
    ("llama", "kv-groups,neurons:2", "LlamaForSequenceClassification"),
    ("qwen2", "layers,neurons:2", "AutoModelForSequenceClassification"),
    ("gemma2", "neurons:2", "AutoModelForCausalLM"),
    ("bart", "neurons:2", "BartForConditionalGeneration"),
    ("t5", "neurons:2,layers", "AutoModelForSeq2SeqLM"),
]


@pytest.mark.parametrize(("family", "players", "kind"), EVEN)
def test_layers_left_alike_are_read_without_headlab(
    family: str, players: str, kind: str, tmp_path: Path
) -> None:
    """The first group of every layer goes, and the first whole layer that can."""
    model = tiny(family, players)
    closed = [
        str(player)
        for player in model.grid.heads
        if (player.layer == 1 if model.grid.kind_of(player) == "layers" else player.head == 0)
    ]
    mask = without(model, *closed)
    folder = tmp_path / "m"
    record = written(model, mask, folder).record
    batch = tiny_batch(model.module)
    rows = json.dumps({name: tensor.tolist() for name, tensor in batch.items()})
    run = subprocess.run(
        [sys.executable, "-c", PLAIN, str(folder), kind, rows],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": ""},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    all_logits, parameters = json.loads(run.stdout)
    assert parameters == record["parameters_after"]
    with gated(model, mask), torch.inference_mode():
        want = model.module(**batch).logits
    is_real = batch["attention_mask"].bool()
    got = torch.tensor(all_logits, dtype=want.dtype)
    if got.shape[:2] == is_real.shape and "decoder_input_ids" not in batch:
        got, want = got[is_real], want[is_real]
    torch.testing.assert_close(got, want, **CLOSE)


def test_uneven_layers_are_refused_without_headlab(tmp_path: Path) -> None:
    model = tiny("bert", "neurons:2")
    written(model, without(model, "encoder-neurons 1.0"), tmp_path / "m")
    run = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path / "m"), "BertForSequenceClassification", "{}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HF_HUB_OFFLINE": "1", "PATH": ""},
    )
    assert run.returncode != 0
    assert "parts were taken out of this model" in run.stderr


def test_a_sentence_of_earlier_versions_is_no_number_either(tmp_path: Path) -> None:
    """Folders of headlab 0.1 have another sentence in config.json."""
    model = random_model("bert", tiny_tokenizer())
    mask = mask_of(model, np.arange(12) % 3 > 0)
    written(model, mask, tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    text = config.read_text()
    now = "parts were taken out of this model; headlab.load_shrunk reads it"
    former = "attention heads were taken out of this model; headlab.load_shrunk reads it"
    assert now in text
    assert "headlab_neurons" not in text
    config.write_text(text.replace(now, former))
    got = logits(load_shrunk(tmp_path / "m"), tiny_batch(model.module))
    torch.testing.assert_close(got, masked_logits(model, mask), **CLOSE)


# Round trips.


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "modernbert"])
def test_shrinking_twice_is_closing_both(family: str) -> None:
    model = playing(random_model(family), "heads,neurons:2")
    first = some_closed(model, seed=3)
    once = shrink_model(model, first).module
    smaller = make_gateable(Checkpoint("once", "test", "once", once, None))
    stack = model.grid.stacks[0].base
    # The second group of what is left of the last layer, and of the others nothing.
    groups = [(0,) * count for count in parts_of(smaller).neurons]
    last = max(n for n, layer in enumerate(parts_of(smaller).layers) if layer.stack == stack)
    groups[last] = tuple(n % 2 for n in range(len(groups[last])))
    again = _with_uneven(smaller, groups)
    mask = without(again, f"{stack}-neurons {parts_of(smaller).layers[last].number}.1")
    want = masked_logits(again, mask)
    twice = shrink_model(again, mask)
    torch.testing.assert_close(logits(twice.module, tiny_batch(once)), want, **CLOSE)
    assert twice.parameters_after < parameters_of(once)


def test_layers_that_become_alike_again_are_a_width() -> None:
    model = playing(random_model("bert"), "neurons:2")
    names = ["encoder-neurons 0.0", "encoder-neurons 1.0"]
    once = shrink_model(model, without(model, *names)).module
    assert once.config.headlab_neurons == {"encoder": [16, 16, 32]}
    smaller = make_gateable(Checkpoint("once", "test", "once", once, None))
    groups = ((0,) * 16, (0,) * 16, tuple(n % 2 for n in range(32)))
    again = _with_uneven(smaller, groups)
    mask = without(again, "encoder-neurons 2.0")
    twice = shrink_model(again, mask)
    assert not hasattr(twice.module.config, "headlab_neurons")
    assert twice.module.config.intermediate_size == 16
    want = masked_logits(again, mask)
    torch.testing.assert_close(logits(twice.module, tiny_batch(once)), want, **CLOSE)


def _with_uneven(model: Model, groups: Any) -> Model:
    from headlab.core import Players

    return with_players(model, Players(("neurons",), 0), tuple(groups))


# Plain folders.


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "gemma2", "albert-like"])
def test_silenced_neurons_keep_the_originals_shapes(family: str, tmp_path: Path) -> None:
    if family == "albert-like":  # one layer used several times: alike in all or not at all
        model = playing(tiny_model("albert"), "neurons:2")
        with raises("export.layers_shared"):
            silence_model(model, without(model, "encoder-neurons 0.0"))
        mask = without(model, *(f"encoder-neurons {layer}.0" for layer in range(3)))
    else:
        model = tiny(family, "heads,neurons:2")
        mask = some_closed(model)
    shrunk = silence_model(model, mask)
    assert shrunk.parameters_after == shrunk.parameters_before == parameters_of(model.module)
    assert type(shrunk.module) is type(model.module)
    got = logits(shrunk.module, tiny_batch(model.module))
    torch.testing.assert_close(got, masked_logits(model, mask), **CLOSE)
    if model.tokenizer is not None:
        record = written(model, mask, tmp_path / "m", shrunk=shrunk).record
        assert record["form"] == "folder"
        assert record["heads_removed"] == 0
        closed_heads = [player for player in mask.removed if model.grid.kind_of(player) == "heads"]
        assert len(record["heads_masked"]) == len(closed_heads)
        assert "neurons silenced" in (tmp_path / "m" / "README.md").read_text()


# What is refused.


def test_every_layer_of_a_stack_cannot_go() -> None:
    model = playing(random_model("bert"), "layers")
    with raises("shrink.no_layer_left", "encoder"):
        shrink_model(model, mask_of(model, np.zeros(3)))


def test_a_first_layer_of_its_own_kind_cannot_go() -> None:
    model = playing(random_model("modernbert"), "layers")
    with raises("shrink.first_layer_differs"):
        shrink_model(model, without(model, "encoder-layers 0.0"))
    mask = without(model, "encoder-layers 1.0")
    got = logits(shrink_model(model, mask).module, tiny_batch(model.module))
    torch.testing.assert_close(got, masked_logits(model, mask), **CLOSE)


def test_layers_whose_number_counts_cannot_go() -> None:
    model = playing(random_model("gpt2"), "layers")
    model.module.config.scale_attn_by_inverse_layer_idx = True
    with raises("shrink.layers_numbered"):
        shrink_model(model, without(model, "decoder-layers 1.0"))


def test_skipped_layers_have_no_place_in_the_originals_shapes() -> None:
    model = playing(random_model("bert"), "layers")
    with raises("export.layers_skipped"):
        silence_model(model, without(model, "encoder-layers 1.0"))


def test_masks_of_other_models_and_groups_are_refused() -> None:
    model = playing(random_model("bert"), "neurons:2")
    other = playing(random_model("bert", seed=1), "neurons:2")
    with raises("mask.other_model"):
        shrink_model(model, full_mask(other.grid) and mask_of(other, np.ones(6)))
    groups = tuple(tuple(1 - group for group in layer) for layer in neuron_groups(model))
    turned = with_players(model, "neurons:2", groups)
    with raises("mask.other_groups"):
        shrink_model(model, mask_of(turned, np.ones(6)))
    with raises("mask.other_players"):
        shrink_model(with_players(model, "heads"), mask_of(model, np.ones(6)))


def test_families_that_are_not_written_are_refused_by_name() -> None:
    model = playing(tiny_model("deberta-v2"), "neurons:2")
    with raises("shrink.family_unknown", "deberta-v2", "gemma2"):
        shrink_model(model, mask_of(model, np.arange(6) > 0))


@pytest.mark.parametrize(
    "neurons",
    [{"sideways": [1, 1, 1]}, {"encoder": [1, 1]}, {"encoder": [1, 1, 33]}, {"encoder": "x"}, [1]],
)
def test_a_configuration_of_other_neurons_is_refused(neurons: Any, tmp_path: Path) -> None:
    model = tiny("bert", "neurons:2")
    written(model, without(model, "encoder-neurons 1.0"), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headlab_neurons": neurons}))
    with pytest.raises(headlab.HeadlabError) as caught:
        load_shrunk(tmp_path / "m")
    assert "neurons" in str(caught.value) or "changed" in str(caught.value)


# ONNX.

MISSING_PACKAGES = [name for name in ONNX_PACKAGES if find_spec(name) is None]


@pytest.mark.slow
@pytest.mark.skipif(
    bool(MISSING_PACKAGES),
    reason=f"the extra onnx is not installed: {', '.join(MISSING_PACKAGES)}",
)
@pytest.mark.parametrize(
    ("family", "players"), [("bert", "heads,neurons:2"), ("bert", "attention,feed-forward")]
)
def test_onnxruntime_answers_as_the_masked_model(family: str, players: str, tmp_path: Path) -> None:
    """Also where a layer has no head, and another no neuron."""
    model = playing(random_model(family, tiny_tokenizer(), dtype=torch.float32), players)
    mask = some_closed(model)
    result = written(model, mask, tmp_path / "m", onnx=True)
    proof = json.loads((result.folder / "proof.json").read_text())
    assert proof["onnx"]["max_logit_difference"] <= proof["onnx"]["tolerance"]
    assert proof["mask_changes"] > 100 * proof["onnx"]["max_logit_difference"]
