"""Specs of results: typed where they are read, and equal to the JSON they were made of."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlab.core import (
    MethodSpec,
    ModelSpec,
    RunSpec,
    TaskSpec,
    as_list,
    as_number,
    as_object,
    as_text,
    canonical_json,
    content_key,
    json_at,
)

SPEC = {
    "format": 1,
    "model": {"name": "m", "revision": "r", "fingerprint": "f", "padded": "right"},
    "task": {"name": "t", "language": "de", "split": "dev", "size": 5, "seed": 0, "data_hash": "h"},
    "ablation": "zero",
    "method": {"name": "shapley", "options": {"samples": 8, "target": None}, "version": 2},
    "seed": 0,
}
TYPED_SPEC = RunSpec(
    format=1,
    model=ModelSpec("m", "r", "f", more={"padded": "right"}),
    task=TaskSpec(name="t", language="de", split="dev", size=5, seed=0, data_hash="h"),
    ablation="zero",
    method=MethodSpec("shapley", {"samples": 8, "target": None}, 2),
    seed=0,
)
# Names that a spec has, so that most of the drawn values are nearly a spec.
PARTS = ("name", "language", "size", "sizes", "options", "version", "fingerprint", "unknown")
FIELDS = (
    "format",
    "kind",
    "experiment",
    "version",
    "model",
    "task",
    "method",
    "options",
    "seed",
    "order",
    "removed",
    "ablation",
    "device",
    "unknown",
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from(PARTS), SCALARS)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), VALUES)


def encodable(value: object) -> bool:
    try:
        canonical_json(value).encode()
    except ValueError:
        return False
    return True


def test_a_spec_is_what_its_json_says():
    assert RunSpec.from_json(SPEC) == TYPED_SPEC == SPEC
    assert SPEC == TYPED_SPEC
    assert vars(RunSpec.from_json(SPEC)).items() >= {"seed": 0, "ablation": "zero"}.items()
    assert RunSpec.from_json(SPEC).method == TYPED_SPEC.method


def test_its_key_is_that_of_its_json():
    assert RunSpec.from_json(SPEC).key == TYPED_SPEC.key == content_key(SPEC)
    assert content_key(TYPED_SPEC) == content_key(SPEC)
    assert content_key([TYPED_SPEC, {"of": TYPED_SPEC}]) == content_key([SPEC, {"of": SPEC}])


def test_it_is_read_as_a_mapping_of_its_json():
    assert [*TYPED_SPEC] == [*SPEC]
    assert len(TYPED_SPEC) == len(SPEC)
    assert TYPED_SPEC["task"]["name"] == "t"
    assert TYPED_SPEC.get("order") is None
    assert {**TYPED_SPEC, "seed": 1} == TYPED_SPEC | {"seed": 1} == SPEC | {"seed": 1}
    with pytest.raises(KeyError):
        TYPED_SPEC["order"]


@given(OBJECTS)
def test_any_object_comes_back_as_it_was(value: dict[str, object]):
    spec = RunSpec.from_json(value)
    assert spec.to_json() == value
    if encodable(value):
        assert canonical_json(spec.to_json()) == canonical_json(value)
        assert spec.key == content_key(value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"model": "m", "task": ["t"], "method": None},
        {"model": {}, "task": {}, "options": {}, "removed": []},
        {"model": {"name": 3, "fingerprint": ""}, "seed": True, "format": 1.0},
        {"removed": [0, 1.5]},
    ],
    ids=str,
)
def test_fields_of_another_type_are_stored_as_they_are_and_read_as_none(value):
    spec = RunSpec.from_json(value)
    assert canonical_json(spec.to_json()) == canonical_json(value)
    assert (spec.model, spec.seed) == (ModelSpec(more=spec.model.more), None)
    assert (spec.task, spec.method, spec.format) == (TaskSpec(), MethodSpec(), None)


def test_a_field_can_be_replaced():
    other_spec = replace(TYPED_SPEC, model=replace(TYPED_SPEC.model, fingerprint="g"))
    assert other_spec["model"]["fingerprint"] == "g"
    assert other_spec.key != TYPED_SPEC.key


def test_it_can_be_copied_and_sent_to_another_process():
    from_pickle = pickle.loads(pickle.dumps(TYPED_SPEC))  # noqa: S301 - its own
    assert from_pickle.key == copy.deepcopy(TYPED_SPEC).key == TYPED_SPEC.key


def test_a_path_that_leads_nowhere_gives_none():
    assert json_at(SPEC, "task", "name") == json_at(TYPED_SPEC, "task", "name") == "t"
    assert json_at(SPEC, "task", "name", "deeper") is None
    assert json_at(SPEC, "order", "method") is None
    assert json_at(3, "task") is None


@pytest.mark.parametrize("narrow", [as_object, as_list, as_text, as_number])
def test_json_of_another_type_is_refused(narrow):
    value_by_function = {as_object: {"a": 1}, as_list: [1], as_text: "a", as_number: 1.5}
    for function, value in value_by_function.items():
        if function is narrow:
            assert narrow(value) == value
            continue
        with pytest.raises(TypeError):
            narrow(value)
    with pytest.raises(TypeError):
        narrow(True)
