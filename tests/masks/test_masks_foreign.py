"""Masks of other tools: each form there and back, refusals in sentences, and fuzz."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.expected_errors import raises

from headlab.core import Head, HeadGrid, HeadlabError, Stack
from headlab.masks import FORMS, OPTIONS_BY_FORM, Mask, convert_in, convert_out, parse_grid

ENCODER = parse_grid("12x12")
THREE_STACKS = parse_grid("encoder=2x4,decoder=3/3/2,cross=3x3")
MODEL = {"name": "m", "fingerprint": "f" * 64}


def mask_without(grid: HeadGrid, *heads: Head) -> Mask:
    is_kept = np.ones(grid.size, bool)
    is_kept[[grid.index(head) for head in heads]] = False
    return Mask(grid, is_kept, MODEL)


def removed_heads(
    raw: str | bytes, form: str | None = None, **options: object
) -> list[tuple[str, int, int]]:
    if isinstance(raw, str):
        raw = raw.encode()
    mask = convert_in(raw, "theirs", form, **options)
    return [tuple(head) for head in mask.removed]


def npy_bytes(values: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(values))
    return buffer.getvalue()


@pytest.mark.parametrize("count_from", [0, 1])
@pytest.mark.parametrize("grid", [ENCODER, THREE_STACKS, parse_grid("4/0/3")])
@pytest.mark.parametrize("form", FORMS)
def test_a_mask_comes_back_from_every_form_that_can_say_it(form, grid, count_from, rng):
    mask = Mask(grid, rng.random(grid.size) > 0.4, MODEL)
    if form == "pruned-heads" and len(grid.stacks) > 1:
        with raises("mask.several_stacks"):
            convert_out(mask, form)
        return
    form_options = OPTIONS_BY_FORM[form]
    all_lists = ("kept", "removed") if "lists" in form_options else (None,)
    for lists in all_lists:
        options = {
            "count_from": count_from if "count_from" in form_options else None,
            "lists": lists,
        }
        raw = convert_out(mask, form, **options)
        converted = convert_in(raw, "there", form, grid=grid, model=MODEL, **options)
        assert (converted.kept == mask.kept).all()
        assert converted.grid == grid
        assert converted.model == MODEL


def test_arrays_and_pairs_come_back_from_npy_files(rng):
    mask = Mask(ENCODER, rng.random(144) > 0.5)
    for form in ("array", "pairs"):
        raw = convert_out(mask, form, binary=True)
        assert (convert_in(raw, "x.npy", form, grid=ENCODER).kept == mask.kept).all()
    mask_of_three_stacks = Mask(THREE_STACKS, np.ones(THREE_STACKS.size, bool))
    with raises("mask.npy_unfit"):
        convert_out(mask_of_three_stacks, "array", binary=True)


def test_lists_and_arrays_as_people_write_them_are_read_as_they_mean_them():
    two_heads = [("encoder", 9, 3), ("encoder", 10, 10)]
    assert removed_heads("9:3 10:10", grid=ENCODER) == two_heads
    assert removed_heads("10:4\n11:11,11\n", grid=ENCODER, count_from=1) == two_heads
    assert removed_heads('{"9": [3], "10": [10]}', grid=ENCODER) == two_heads
    assert removed_heads("[[9, 3], [10, 10]]", grid=ENCODER) == two_heads
    npy_pairs = npy_bytes([[9, 3], [10, 10]])
    assert removed_heads(npy_pairs, grid=ENCODER) == two_heads
    array = np.ones((12, 12), int)
    array[9, 3] = 0
    array[10, 10] = 0
    for values in (array, array.astype(bool), array.astype(np.float32)):
        assert removed_heads(npy_bytes(values)) == two_heads
        assert removed_heads(json.dumps(values.tolist())) == two_heads
    decoder_heads = [("decoder", 9, 3), ("decoder", 10, 10)]
    assert removed_heads(npy_bytes(1 - array), lists="removed", stack="decoder") == decoder_heads
    assert len(removed_heads("[[9, 3], [10, 10]]", grid=ENCODER, lists="kept")) == 142


def test_a_mask_that_removes_nothing_and_an_emptied_layer_come_back():
    grid = parse_grid("4/0/3")
    mask_of_all_heads = Mask(grid, np.ones(7, bool), MODEL)
    mask_of_no_head = Mask(grid, np.zeros(7, bool), MODEL)
    for mask in (mask_of_all_heads, mask_of_no_head):
        raw = convert_out(mask, "array")
        assert (convert_in(raw, "there").kept == mask.kept).all()  # the array alone says the grid
        assert convert_in(raw, "there").grid == grid
    for form in ("text", "pairs", "pruned-heads"):
        assert removed_heads(convert_out(mask_of_all_heads, form), form, grid=grid) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_text_as_windows_writes_it_is_read(encoding):
    two_heads = [("encoder", 9, 3), ("encoder", 10, 10)]
    for text in ("9:3 10:10\r\n", '{"9": [3], "10": [10]}', "[[9, 3], [10, 10]]"):
        assert removed_heads(text.encode(encoding), grid=ENCODER) == two_heads
    text_of_one_head = "9:3".encode(encoding)
    assert removed_heads(text_of_one_head, "text", grid=ENCODER) == [("encoder", 9, 3)]
    mask = mask_without(ENCODER, Head("encoder", 1, 2))
    raw = json.dumps(mask.to_json()).encode(encoding)
    assert convert_in(raw, "m.json").removed == mask.removed


def test_a_mask_without_a_fingerprint_takes_that_of_the_model():
    old_model = {"name": "old", "fingerprint": None}
    mask_without_fingerprint = Mask(ENCODER, np.ones(144, bool), old_model, {"rule": "x"})
    raw = convert_out(mask_without_fingerprint, "headlab")
    converted = convert_in(raw, "m.json", grid=ENCODER, model=MODEL)
    assert converted.model == MODEL
    assert converted.chosen == {"rule": "x"}
    assert convert_in(raw, "m.json", grid=ENCODER).model == mask_without_fingerprint.model
    raw = convert_out(converted, "headlab")
    other_model = {"name": "n", "fingerprint": "e" * 64}
    with raises("mask.other_model"):
        convert_in(raw, "m.json", grid=ENCODER, model=other_model)


def test_a_count_or_list_that_a_form_does_not_have_is_refused():
    mask = mask_without(ENCODER, Head("encoder", 9, 3))
    for form in FORMS:
        raw = convert_out(mask, form)
        for name, value in {"count_from": 1, "lists": "kept"}.items():
            if name not in OPTIONS_BY_FORM[form]:
                words = name.replace("_", "-")
                with raises("mask.form_option_unused", form, words):
                    convert_in(raw, "there", form, grid=ENCODER, **{name: value})
                with raises("mask.form_option_unused", form, words):
                    convert_out(mask, form, **{name: value})


def test_letters_and_names_distinguish_stacks():
    three_heads = [
        ("encoder", 0, 1),
        ("decoder", 2, 0),
        ("cross", 1, 2),
    ]
    assert removed_heads("E:0:1 A:1:2 D:2:0", grid=THREE_STACKS) == three_heads
    pairs = '[["encoder", 0, 1], ["cross", 1, 2], ["decoder", 2, 0]]'
    assert removed_heads(pairs, grid=THREE_STACKS) == three_heads
    rows = [
        [1, 0, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1],
        [1, 1, 1],
        [0, 1],
        [1, 1, 1],
        [1, 1, 0],
        [1, 1, 1],
    ]
    assert removed_heads(json.dumps(rows), grid=THREE_STACKS) == three_heads
    with raises("mask.stack_unnamed"):
        removed_heads("0:1", grid=THREE_STACKS)


def test_a_config_gives_its_grid_and_its_model():
    config = {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "pruned_heads": {"0": [1, 3], "2": [0]},
        "_name_or_path": "owner/bert",
    }
    mask = convert_in(json.dumps(config).encode(), "config.json")
    heads = [(head.layer, head.head) for head in mask.removed]
    assert heads == [(0, 1), (0, 3), (2, 0)]
    assert {head.stack for head in mask.removed} == {"encoder"}
    assert mask.model["architecture"] == {"class": "BertForMaskedLM", "model_type": "bert"}
    assert mask.model["name"] == "owner/bert"
    assert mask.model["fingerprint"] is None
    assert mask.chosen["converted_from"] == "pruned-heads"
    assert mask.to_json()["model"]["fingerprint"] is None
    gpt_config = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_head": 4,
        "pruned_heads": {},
    }
    gpt_mask = convert_in(json.dumps(gpt_config).encode(), "config.json")
    assert gpt_mask.grid.to_json() == {"decoder": [4, 4]}
    with raises("grid.ambiguous"):
        removed_heads(json.dumps(config | {"is_encoder_decoder": True}))
    with raises("mask.other_grid", "3×4", "encoder 12×12"):
        removed_heads(json.dumps(config), grid=ENCODER)


@pytest.mark.parametrize(
    ("raw", "options", "refusal"),
    [
        ("9:3", {}, ("grid.unknown", "--model", "--grid")),
        ("12:0", {"grid": ENCODER}, ("head.unknown",)),
        ("0:0", {"grid": ENCODER, "count_from": 1}, ("mask.counted_from_other", 0)),
        ("9:3 ten", {"form": "text"}, ("mask.head_malformed", "'ten'")),
        ("", {}, ("mask.empty",)),
        ("[[0, 1], [1, 0]]", {}, ("mask.form_ambiguous", "--from array", "--from pairs")),
        ("[]", {}, ("mask.form_ambiguous", "--from array", "--from pairs")),
        ("[[0.2, 0.7, 0.1]]", {}, ("mask.array_malformed",)),
        ("[[1, 2], 3]", {"form": "pairs"}, ("mask.pair_malformed",)),
        ('{"0": 3}', {}, ("mask.layer_malformed",)),
        ('{"0": [true]}', {}, ("mask.layer_malformed",)),
        ('{"architectures": []}', {}, ("mask.layer_malformed",)),
        ("what is this", {}, ("mask.form_unrecognised", "headlab, pruned-heads")),
        ("9:3 ten", {}, ("mask.form_unrecognised",)),
        ('"9:3"', {}, ("mask.form_unrecognised",)),
        ("{9:3}", {}, ("json.invalid",)),
        ('{"0": [2], "0": [3]}', {}, ("json.name_twice", "'0'")),
        (b"PK\x03\x04head_mask.pt", {}, ("mask.pickled",)),
        (b"\x80\x04.", {}, ("mask.pickled",)),
        (b"\x93NUMPY\x01\x00garbage", {}, ("mask.npy_malformed",)),
        (npy_bytes([[1, 0, 1]]), {"grid": ENCODER}, ("mask.other_grid", "encoder 12×12")),
        ("x", {"form": "onnx"}, ("mask.form_unknown",)),
    ],
)
def test_bytes_that_are_no_mask_or_ambiguous_are_refused_in_a_sentence(raw, options, refusal):
    with raises(*refusal):
        removed_heads(raw, **options)


def test_arrays_of_objects_are_never_unpickled():
    buffer = io.BytesIO()
    array_of_objects = np.array([{"a": 1}], object)
    np.save(buffer, array_of_objects, allow_pickle=True)
    with raises("mask.npy_malformed"):
        removed_heads(buffer.getvalue())


@pytest.mark.parametrize(
    "values",
    [
        np.array([[b"a", b"b"]]),
        np.array([["2026-11-21", "2026-11-22"]], "datetime64[D]"),
        np.array([[1j, 2j]]),
        np.array([[(1, 2)]], [("a\x1b", int), ("b", int)]),
        np.array([["E", "1"]]),
    ],
)
def test_arrays_of_other_things_than_numbers_are_refused(values):
    for form in (None, "pairs", "array"):
        with raises("mask.npy_not_numbers"):
            removed_heads(npy_bytes(values), form, grid=ENCODER)


def test_long_numbers_are_numbers():
    array = np.array([[1, 0, 1]], np.longdouble)
    assert removed_heads(npy_bytes(array)) == [("encoder", 0, 1)]
    pair = np.array([[9, 3]], np.longdouble)
    with raises("mask.pair_malformed", "[9.0, 3.0]"):
        removed_heads(npy_bytes(pair), "pairs", grid=ENCODER)


HEADER_BYTES = st.sampled_from(b"({[]})'\",:\\ \n\t0x<>TF") | st.integers(0, 255)
HEADER_CHANGES = st.dictionaries(st.integers(6, 127), HEADER_BYTES, min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(HEADER_CHANGES)
def test_fuzz_npy_files_with_a_changed_header(changes):
    raw = bytearray(npy_bytes(np.ones((12, 12), np.uint8)))
    for position, byte in changes.items():
        raw[position] = byte
    for form in (None, "array", "pairs"):
        try:
            mask = convert_in(bytes(raw), "theirs", form, grid=ENCODER)
        except HeadlabError:
            continue
        assert mask.kept.shape == (144,)


def test_a_header_that_is_no_python_is_refused():
    raw = npy_bytes(np.ones((2, 3)))
    with raises("mask.npy_malformed"):
        removed_heads(raw.replace(b"{'", b"((", 1))


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
    stacks = []
    for name, heads in grid.items():
        stacks.append(Stack(name, tuple(heads)))
    assert parse_grid(text) == HeadGrid(tuple(stacks))


@pytest.mark.parametrize(
    "text", ["", "x", "12", "0x3", "9999x9999", "2x3,2x3", "a=b", "12x", "3x4 5x6"]
)
def test_other_grids_are_refused_unless_they_name_one_layer(text):
    if text == "12":
        assert parse_grid(text).to_json() == {"encoder": [12]}
        return
    code = "grid.sizes_out_of_range" if text in ("0x3", "9999x9999") else "grid.malformed"
    with raises(code, "grid"):
        parse_grid(text)


TEXT_PIECES = st.sampled_from(
    ["9:3", "E:", ":", ",", "{", "}", "[", "]", '"0"', "1", "0", "true", " ", "\n", "null", "-1"]
)


TEXTS = st.lists(TEXT_PIECES, max_size=9).map("".join)
NPY_FILES = st.binary(max_size=30).map(npy_bytes(1).__add__)


@settings(max_examples=120, deadline=None)
@given(TEXTS | st.binary(max_size=40) | NPY_FILES)
def test_fuzz_any_bytes_in_any_form_are_a_mask_or_a_sentence(raw):
    given_bytes = raw.encode() if isinstance(raw, str) else raw
    for form in (None, *FORMS):
        try:
            mask = convert_in(given_bytes, "theirs", form, grid=THREE_STACKS)
        except HeadlabError:
            continue
        assert mask.kept.shape == (THREE_STACKS.size,)
