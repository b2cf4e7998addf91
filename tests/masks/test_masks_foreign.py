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
THREE = parse_grid("encoder=2x4,decoder=3/3/2,cross=3x3")
MODEL = {"name": "m", "fingerprint": "f" * 64}


def without(grid: HeadGrid, *heads: Head) -> Mask:
    kept = np.ones(grid.size, bool)
    kept[[grid.index(head) for head in heads]] = False
    return Mask(grid, kept, MODEL)


def removed(
    raw: str | bytes, form: str | None = None, **more: object
) -> list[tuple[str, int, int]]:
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
        with raises("mask.several_stacks"):
            convert_out(mask, form)
        return
    for lists in ("kept", "removed") if "lists" in OPTIONS_BY_FORM[form] else (None,):
        how = {
            "count_from": count_from if "count_from" in OPTIONS_BY_FORM[form] else None,
            "lists": lists,
        }
        raw = convert_out(mask, form, **how)
        back = convert_in(raw, "there", form, grid=grid, model=MODEL, **how)
        assert (back.kept == mask.kept).all()
        assert (back.grid, back.model) == (grid, MODEL)


def test_arrays_and_pairs_come_back_from_npy_files(rng):
    mask = Mask(ENCODER, rng.random(144) > 0.5)
    for form in ("array", "pairs"):
        raw = convert_out(mask, form, binary=True)
        assert (convert_in(raw, "x.npy", form, grid=ENCODER).kept == mask.kept).all()
    with raises("mask.npy_unfit"):
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
    assert removed(npy(1 - array), lists="removed", stack="decoder") == [
        ("decoder", *place) for _, *place in two
    ]
    assert len(removed("[[9, 3], [10, 10]]", grid=ENCODER, lists="kept")) == 142


def test_a_mask_that_removes_nothing_and_an_emptied_layer_come_back():
    grid = parse_grid("4/0/3")
    whole = Mask(grid, np.ones(7, bool), MODEL)
    gone = Mask(grid, np.zeros(7, bool), MODEL)
    for mask in (whole, gone):
        raw = convert_out(mask, "array")
        assert (convert_in(raw, "there").kept == mask.kept).all()  # the array alone says the grid
        assert convert_in(raw, "there").grid == grid
    for form in ("text", "pairs", "pruned-heads"):
        assert removed(convert_out(whole, form), form, grid=grid) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_text_as_windows_writes_it_is_read(encoding):
    for text in ("9:3 10:10\r\n", '{"9": [3], "10": [10]}', "[[9, 3], [10, 10]]"):
        assert removed(text.encode(encoding), grid=ENCODER) == [
            ("encoder", 9, 3),
            ("encoder", 10, 10),
        ]
    assert removed("9:3".encode(encoding), "text", grid=ENCODER) == [("encoder", 9, 3)]
    mask = without(ENCODER, Head("encoder", 1, 2))
    assert convert_in(json.dumps(mask.to_json()).encode(encoding), "m.json").removed == mask.removed


def test_a_mask_without_a_fingerprint_takes_the_models():
    nameless = Mask(
        ENCODER, np.ones(144, bool), {"name": "old", "fingerprint": None}, {"rule": "x"}
    )
    raw = convert_out(nameless, "headlab")
    taken = convert_in(raw, "m.json", grid=ENCODER, model=MODEL)
    assert (taken.model, taken.chosen) == (MODEL, {"rule": "x"})
    assert convert_in(raw, "m.json", grid=ENCODER).model == nameless.model
    with raises("mask.other_model"):
        convert_in(
            convert_out(taken, "headlab"),
            "m.json",
            grid=ENCODER,
            model={"name": "n", "fingerprint": "e" * 64},
        )


def test_a_count_or_list_that_a_form_does_not_have_is_refused():
    mask = without(ENCODER, Head("encoder", 9, 3))
    for form in FORMS:
        raw = convert_out(mask, form)
        for name, value in {"count_from": 1, "lists": "kept"}.items():
            if name not in OPTIONS_BY_FORM[form]:
                words = name.replace("_", "-")
                with raises("mask.form_option_unused", form, words):
                    convert_in(raw, "there", form, grid=ENCODER, **{name: value})
                with raises("mask.form_option_unused", form, words):
                    convert_out(mask, form, **{name: value})


def test_letters_and_names_tell_stacks_apart():
    told = [("encoder", 0, 1), ("decoder", 2, 0), ("cross", 1, 2)]
    assert removed("E:0:1 A:1:2 D:2:0", grid=THREE) == told
    assert removed('[["encoder", 0, 1], ["cross", 1, 2], ["decoder", 2, 0]]', grid=THREE) == told
    rows = [[1, 0, 1, 1], [1] * 4, [1] * 3, [1] * 3, [0, 1], [1] * 3, [1, 1, 0], [1] * 3]
    assert removed(json.dumps(rows), grid=THREE) == told
    with raises("mask.stack_unnamed"):
        removed("0:1", grid=THREE)


def test_a_config_tells_its_grid_and_its_model():
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "num_hidden_layers": 3}
    config |= {
        "num_attention_heads": 4,
        "pruned_heads": {"0": [1, 3], "2": [0]},
        "_name_or_path": "owner/bert",
    }
    mask = convert_in(json.dumps(config).encode(), "config.json")
    assert [tuple(head) for head in mask.removed] == [
        ("encoder", 0, 1),
        ("encoder", 0, 3),
        ("encoder", 2, 0),
    ]
    assert mask.model["architecture"] == {"class": "BertForMaskedLM", "model_type": "bert"}
    assert (mask.model["name"], mask.model["fingerprint"], mask.chosen["converted_from"]) == (
        "owner/bert",
        None,
        "pruned-heads",
    )
    assert mask.to_json()["model"]["fingerprint"] is None
    gpt = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "pruned_heads": {}}
    assert convert_in(json.dumps(gpt).encode(), "config.json").grid.to_json() == {"decoder": [4, 4]}
    with raises("grid.ambiguous"):
        removed(json.dumps(config | {"is_encoder_decoder": True}))
    with raises("mask.other_grid", "3×4", "encoder 12×12"):
        removed(json.dumps(config), grid=ENCODER)


@pytest.mark.parametrize(
    ("raw", "more", "expected"),
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
        (npy([[1, 0, 1]]), {"grid": ENCODER}, ("mask.other_grid", "encoder 12×12")),
        ("x", {"form": "onnx"}, ("mask.form_unknown",)),
    ],
)
def test_what_is_no_mask_or_not_clear_is_refused_in_a_sentence(raw, more, expected):
    with raises(*expected):
        removed(raw, **more)


def test_arrays_of_objects_are_never_unpickled():
    out = io.BytesIO()
    np.save(out, np.array([{"a": 1}], object), allow_pickle=True)
    with raises("mask.npy_malformed"):
        removed(out.getvalue())


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
            removed(npy(values), form, grid=ENCODER)


def test_long_numbers_are_numbers():
    assert removed(npy(np.array([[1, 0, 1]], np.longdouble))) == [("encoder", 0, 1)]
    with raises("mask.pair_malformed", "[9.0, 3.0]"):
        removed(npy(np.array([[9, 3]], np.longdouble)), "pairs", grid=ENCODER)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.integers(6, 127),
        st.sampled_from(b"({[]})'\",:\\ \n\t0x<>TF") | st.integers(0, 255),
        min_size=1,
        max_size=4,
    )
)
def test_fuzz_npy_files_with_a_changed_header(changes):
    raw = bytearray(npy(np.ones((12, 12), np.uint8)))
    for at, byte in changes.items():
        raw[at] = byte
    for form in (None, "array", "pairs"):
        try:
            mask = convert_in(bytes(raw), "theirs", form, grid=ENCODER)
        except HeadlabError:
            continue
        assert mask.kept.shape == (144,)


def test_a_header_that_is_no_python_is_refused():
    raw = npy(np.ones((2, 3)))
    with raises("mask.npy_malformed"):
        removed(raw.replace(b"{'", b"((", 1))


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
    assert parse_grid(text) == HeadGrid(
        tuple(Stack(name, tuple(heads)) for name, heads in grid.items())
    )


@pytest.mark.parametrize(
    "text", ["", "x", "12", "0x3", "9999x9999", "2x3,2x3", "a=b", "12x", "3x4 5x6"]
)
def test_other_grids_are_refused_unless_they_name_one_layer(text):
    if text == "12":
        assert parse_grid(text).to_json() == {"encoder": [12]}
        return
    with raises(
        "grid.sizes_out_of_range" if text in ("0x3", "9999x9999") else "grid.malformed", "grid"
    ):
        parse_grid(text)


scraps = st.sampled_from(
    ["9:3", "E:", ":", ",", "{", "}", "[", "]", '"0"', "1", "0", "true", " ", "\n", "null", "-1"]
)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(scraps, max_size=9).map("".join)
    | st.binary(max_size=40)
    | st.binary(max_size=30).map(npy(1).__add__)
)
def test_fuzz_any_bytes_in_any_form_are_a_mask_or_a_sentence(raw):
    given_bytes = raw.encode() if isinstance(raw, str) else raw
    for form in (None, *FORMS):
        try:
            mask = convert_in(given_bytes, "theirs", form, grid=THREE)
        except HeadlabError:
            continue
        assert mask.kept.shape == (THREE.size,)
