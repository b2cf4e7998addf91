"""Masks of other tools: each form there and back, refusals in sentences, and fuzz."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.errors import HeadlabError
from headlab.masks import FORMS, Mask, convert_in, convert_out, parse_grid
from headlab.records import Head, HeadGrid, Stack

ENCODER = parse_grid("12x12")
THREE = parse_grid("encoder=2x4,decoder=3/3/2,cross=3x3")
MODEL = {"name": "m", "fingerprint": "f" * 64}


def without(grid: HeadGrid, *heads: Head) -> Mask:
    kept = np.ones(grid.size, bool)
    kept[[grid.index(head) for head in heads]] = False
    return Mask(grid, kept, MODEL)


def removed(raw: str | bytes, form: str | None = None, **more: object) -> list[tuple[str, int, int]]:
    mask = convert_in(raw.encode() if isinstance(raw, str) else raw, "theirs", form, **more)
    return [tuple(head) for head in mask.removed]


def npy(values: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array(values))
    return out.getvalue()


@pytest.mark.parametrize("count_from", [0, 1])
@pytest.mark.parametrize("grid", [ENCODER, THREE, parse_grid("4/0/3")])
@pytest.mark.parametrize("form", FORMS)
def test_a_mask_comes_back_from_every_form_that_can_say_it(form, grid, count_from, rng):
    mask = Mask(grid, rng.random(grid.size) > 0.4, MODEL)
    if form == "pruned-heads" and len(grid.stacks) > 1:
        with pytest.raises(HeadlabError, match="one stack of layers"):
            convert_out(mask, form)
        return
    if form == "array" and 0 in [n for stack in grid.stacks for n in stack.heads]:
        grid, mask = ENCODER, Mask(ENCODER, rng.random(144) > 0.4, MODEL)  # a list of heads cannot be empty
    for lists in ("kept", "removed") if form in ("array", "pairs") else (None,):
        raw = convert_out(mask, form, count_from=count_from, lists=lists)
        back = convert_in(raw, "there", form, grid=grid, model=MODEL, count_from=count_from, lists=lists)
        assert (back.kept == mask.kept).all()
        assert (back.grid, back.model) == (grid, MODEL)


def test_arrays_and_pairs_come_back_from_npy_files(rng):
    mask = Mask(ENCODER, rng.random(144) > 0.5)
    for form in ("array", "pairs"):
        raw = convert_out(mask, form, binary=True)
        assert (convert_in(raw, "x.npy", form, grid=ENCODER).kept == mask.kept).all()
    with pytest.raises(HeadlabError, match=r"rows of one length"):
        convert_out(Mask(THREE, np.ones(THREE.size, bool)), "array", binary=True)


def test_what_people_have_is_read_as_they_mean_it():
    two = [("encoder", 9, 3), ("encoder", 10, 10)]
    assert removed("9:3 10:10", grid=ENCODER) == two
    assert removed("10:4\n11:11,11\n", grid=ENCODER, count_from=1) == two
    assert removed('{"9": [3], "10": [10]}', grid=ENCODER) == two
    assert removed("[[9, 3], [10, 10]]", grid=ENCODER) == two
    assert removed(npy([[9, 3], [10, 10]]), grid=ENCODER) == two
    array = np.ones((12, 12), int)
    array[9, 3] = array[10, 10] = 0
    for values in (array, array.astype(bool), array.astype(np.float32)):
        assert removed(npy(values)) == two
        assert removed(json.dumps(values.tolist())) == two
    assert removed(npy(1 - array), lists="removed", stack="decoder") == [("decoder", *place) for _, *place in two]
    assert len(removed("[[9, 3], [10, 10]]", grid=ENCODER, lists="kept")) == 142


def test_letters_and_names_tell_stacks_apart():
    told = [("encoder", 0, 1), ("decoder", 2, 0), ("cross", 1, 2)]
    assert removed("E:0:1 A:1:2 D:2:0", grid=THREE) == told
    assert removed('[["encoder", 0, 1], ["cross", 1, 2], ["decoder", 2, 0]]', grid=THREE) == told
    rows = [[1, 0, 1, 1], [1] * 4, [1] * 3, [1] * 3, [0, 1], [1] * 3, [1, 1, 0], [1] * 3]
    assert removed(json.dumps(rows), grid=THREE) == told
    with pytest.raises(HeadlabError, match="does not say of which stack"):
        removed("0:1", grid=THREE)


def test_a_config_tells_its_grid_and_its_model():
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "num_hidden_layers": 3}
    config |= {"num_attention_heads": 4, "pruned_heads": {"0": [1, 3], "2": [0]}, "_name_or_path": "owner/bert"}
    mask = convert_in(json.dumps(config).encode(), "config.json")
    assert [tuple(head) for head in mask.removed] == [("encoder", 0, 1), ("encoder", 0, 3), ("encoder", 2, 0)]
    assert mask.model["architecture"] == {"class": "BertForMaskedLM", "model_type": "bert"}
    assert (mask.model["name"], mask.model["fingerprint"], mask.chosen["converted_from"]) == (
        "owner/bert", None, "pruned-heads",
    )  # fmt: skip
    assert mask.to_json()["model"]["fingerprint"] is None
    gpt = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "pruned_heads": {}}
    assert convert_in(json.dumps(gpt).encode(), "config.json").grid.to_json() == {"decoder": [4, 4]}
    with pytest.raises(HeadlabError, match="whose heads"):
        removed(json.dumps(config | {"is_encoder_decoder": True}))
    with pytest.raises(HeadlabError, match="3×4; the model has encoder 12×12"):
        removed(json.dumps(config), grid=ENCODER)


@pytest.mark.parametrize(
    ("raw", "more", "words"),
    [
        ("9:3", {}, "--model, or --grid like 12x12"),
        ("12:0", {"grid": ENCODER}, "no head"),
        ("0:0", {"grid": ENCODER, "count_from": 1}, "count from 0"),
        ("9:3 ten", {"form": "text"}, "'ten' is no head"),
        ("", {}, "empty"),
        ("[[0, 1], [1, 0]]", {}, "--from array or --from pairs"),
        ("[]", {}, "--from array or --from pairs"),
        ("[[0.2, 0.7, 0.1]]", {}, "choose a threshold"),
        ("[[1, 2], 3]", {"form": "pairs"}, "no .layer, head. pair"),
        ('{"0": 3}', {}, "list of heads"),
        ('{"0": [true]}', {}, "list of heads"),
        ('{"architectures": []}', {}, "list of heads"),
        ("what is this", {}, "not valid JSON"),
        (b"PK\x03\x04head_mask.pt", {}, "pickled tensor"),
        (b"\x80\x04.", {}, "pickled tensor"),
        (b"\x93NUMPY\x01\x00garbage", {}, "no .npy file"),
        (npy([[1, 0, 1]]), {"grid": ENCODER}, "the model has encoder 12×12"),
        ("x", {"form": "onnx"}, "unknown form"),
    ],
)
def test_what_is_no_mask_or_not_clear_is_refused_in_a_sentence(raw, more, words):
    with pytest.raises(HeadlabError, match=words):
        removed(raw, **more)


def test_arrays_of_objects_are_never_unpickled():
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(HeadlabError, match=r"no \.npy file"):
        removed(out.getvalue())


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("2x3", {"encoder": [3, 3]}),
        ("2×3", {"encoder": [3, 3]}),
        ("4/0/3", {"encoder": [4, 0, 3]}),
        ("cross=1x2, encoder=2x2", {"encoder": [2, 2], "cross": [2]}),
    ],
)
def test_grids_as_people_type_them(text, grid):
    assert parse_grid(text) == HeadGrid(tuple(Stack(name, tuple(heads)) for name, heads in grid.items()))


@pytest.mark.parametrize("text", ["", "x", "12", "0x3", "9999x9999", "2x3,2x3", "a=b", "12x", "3x4 5x6"])
def test_other_grids_are_refused_unless_they_name_one_layer(text):
    if text == "12":
        assert parse_grid(text).to_json() == {"encoder": [12]}
        return
    with pytest.raises(HeadlabError, match="grid"):
        parse_grid(text)


scraps = st.sampled_from(["9:3", "E:", ":", ",", "{", "}", "[", "]", '"0"', "1", "0", "true", " ", "\n", "null", "-1"])


@settings(max_examples=120, deadline=None)
@given(st.lists(scraps, max_size=9).map("".join) | st.binary(max_size=40) | st.binary(max_size=30).map(npy(1).__add__))
def test_fuzz_any_bytes_in_any_form_are_a_mask_or_a_sentence(raw):
    given_bytes = raw.encode() if isinstance(raw, str) else raw
    for form in (None, *FORMS):
        try:
            mask = convert_in(given_bytes, "theirs", form, grid=THREE)
        except HeadlabError:
            continue
        assert mask.kept.shape == (THREE.size,)
