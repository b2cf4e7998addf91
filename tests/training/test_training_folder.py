"""Where a training's folder is put: what is replaced there, and what of the user's never is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.expected_errors import raises
from support.synthetic_text import TINY_OPTIONS, made_splits
from support.tiny_models import tiny_module
from support.tiny_task import tiny_tokenizer
from transformers import PreTrainedModel

import headlab.shrink.folder
import headlab.training.output
from headlab.models.checkpoint import building_alone
from headlab.models.files import checkpoint_beside, replacing_folder
from headlab.training.lm_train import train_lm
from headlab.training.output import (
    TrainingOutput,
    check_out,
    copy_folder,
    whole_output,
    write_folder,
)

OUTPUT = TrainingOutput(
    {"w": torch.zeros(2)}, "model.safetensors", {"config.json": {"model_type": "bert"}}
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "m", OUTPUT, {"seconds": 1.0})
    return tmp_path / "m"


@pytest.mark.parametrize(
    "check", [headlab.training.output.check_out, headlab.shrink.folder.check_target]
)
@pytest.mark.parametrize(
    ("path_from_folder", "code"),
    [
        ("new/..", "output.parent_missing"),
        ("new/../../victim", "output.parent_missing"),
        ("there/..", "output.not_replaceable"),
        ("../link", "output.not_replaceable"),
    ],
)
def test_a_folder_is_judged_by_where_the_path_leads(
    tmp_path: Path,
    check,
    path_from_folder: str,
    code: str,
):
    victim = tmp_path / "victim"
    (victim / "there").mkdir(parents=True)
    (victim / "thesis.tex").write_text("years")
    (tmp_path / "link").symlink_to(victim)
    advice = ["give /"] if code == "output.parent_missing" else []
    with raises(code, *advice):
        check(victim / path_from_folder)


def test_a_training_into_a_path_that_leads_back_leaves_what_is_there(tmp_path: Path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.tex").write_text("years")
    with raises("output.parent_missing"):
        train_lm(made_splits(), tmp_path / "victim" / "new" / "..", TINY_OPTIONS)
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    "name", ["notes.txt", "below/notes.txt", "model.safetensors", "config.json"]
)
def test_a_file_that_was_added_or_changed_since_keeps_the_folder(folder: Path, name: str):
    check_out(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    with raises("output.files_changed", name, "a training"):
        check_out(folder)
    with raises("output.files_changed"):
        train_lm(made_splits(), folder, TINY_OPTIONS)
    assert (folder / name).read_text() == "mine"


def test_of_many_files_a_few_are_named(folder: Path):
    for name in "abcde":
        (folder / name).write_text("")
    with raises("output.files_changed", "a, b, c and 2 more", "a training"):
        check_out(folder)


def test_a_folder_that_does_not_list_its_files_is_not_replaced(folder: Path):
    record = json.loads((folder / "training.json").read_text())
    assert sorted(record.pop("files")) == ["config.json", "model.safetensors"]
    (folder / "training.json").write_text(json.dumps(record))
    with raises("output.record_unreadable", "training.json"):
        check_out(folder)
    (folder / "training.json").write_text("torn")
    with raises("output.files_changed", "training.json", "a training"):
        check_out(folder)
    (folder / "training.json").unlink()
    with raises("output.not_replaceable", "a training"):
        check_out(folder)


def test_what_a_training_wrote_is_replaced_and_so_is_a_copy_of_it(folder: Path, tmp_path: Path):
    write_folder(folder, OUTPUT, {"seconds": 2.0})
    copy_folder(folder, tmp_path / "copy")
    check_out(folder)
    check_out(tmp_path / "copy")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new", "new/below"):
        check_out(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_reported_before_the_training(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with raises("output.unwritable", "file"):
        check_out(tmp_path / "file" / "m")


def test_a_checkpoint_is_beside_the_folder_that_the_path_leads_to(tmp_path: Path):
    (tmp_path / "m" / "below").mkdir(parents=True)
    checkpoint = checkpoint_beside(tmp_path / "m" / "below" / "..", "abcdef" * 4)
    assert checkpoint == tmp_path / ".m-abcdefabcdef.checkpoint.safetensors"


@pytest.mark.parametrize("family", ["marian", "mbart", "t5", "bert"])
def test_each_weight_is_written_once_and_read_into_all_its_places(tmp_path: Path, family: str):
    module = tiny_module(family, torch.float32)
    write_folder(tmp_path / "m", whole_output(module, tiny_tokenizer()), {})
    stored_weights = load_file(tmp_path / "m" / "model.safetensors")
    state = module.state_dict()
    distinct_tensors = {(tensor.data_ptr(), tensor.shape) for tensor in state.values()}
    assert len(stored_weights) == len(distinct_tensors)
    with building_alone():
        loaded_module: PreTrainedModel = type(module).from_pretrained(tmp_path / "m")
    loaded_state = loaded_module.state_dict()
    assert loaded_state.keys() == state.keys()
    for name, tensor in loaded_state.items():
        assert torch.equal(tensor, state[name])


def is_filled(folder: Path) -> bool:
    return (folder / "done").is_file()


def test_of_two_that_fill_a_folder_at_once_the_first_stays(tmp_path: Path):
    """As where a worker and a command convert one model: neither replaces what the other reads."""
    folder = tmp_path / "model"
    with replacing_folder(folder, is_filled) as late_folder:
        (late_folder / "done").write_text("late")
        with replacing_folder(folder, is_filled) as early_folder:
            (early_folder / "done").write_text("early")
    assert (folder / "done").read_text() == "early"
    with replacing_folder(folder) as newer_folder:
        (newer_folder / "done").write_text("newer")
    assert (folder / "done").read_text() == "newer"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_an_earlier_version_left_half_filled_is_removed_once_it_is_old(tmp_path: Path):
    old_folder = tmp_path / ".model.aaaaaaaa"
    young_folder = tmp_path / ".model.bbbbbbbb"
    old_folder.mkdir()
    young_folder.mkdir()
    os.utime(old_folder, (0, 0))
    with replacing_folder(tmp_path / "model") as new_folder:
        (new_folder / "done").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == [young_folder.name, "model"]
