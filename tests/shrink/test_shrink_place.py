"""Where a shrunk model is put: what is replaced there and what is not, links, and what killed processes leave."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_errors import raises
from support.shrunk_families import mask_of, random_model, uneven_mask
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer

import headlab
from headlab.models import files
from headlab.models.files import replacing_folder
from headlab.shrink import shrink_model
from headlab.shrink.folder import check_target, write_shrunk


@pytest.fixture(scope="module")
def model():
    return random_model("bert", tiny_tokenizer(), dtype=torch.float32)


def write_shrunk_model(model, folder, mask=None):
    shrunk = shrink_model(model, mask or uneven_mask(model))
    return write_shrunk(
        model, shrunk, folder, [tiny_batch(model.module)], compared_on={"task": None}
    )


@pytest.fixture(scope="module")
def shrunk_folder(model, tmp_path_factory):
    return write_shrunk_model(model, tmp_path_factory.mktemp("place") / "m").folder


@pytest.fixture
def folder(shrunk_folder, tmp_path):
    return Path(shutil.copytree(shrunk_folder, tmp_path / "m"))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_by_a_newer_one(model, folder, tmp_path, exchange, monkeypatch):
    if not exchange:
        monkeypatch.setattr(files, "exchange_folders", lambda *_: False)
    replacement = write_shrunk_model(model, folder, mask_of(model, np.arange(12) != 3))
    assert replacement.fingerprint == headlab.load(str(folder)).fingerprint
    assert names(tmp_path) == ["m"]


def test_what_shrink_did_not_make_is_not_replaced(model, tmp_path):
    folder = tmp_path / "m"
    folder.mkdir()
    file = folder / "thesis.tex"
    file.write_text("years")
    with raises("output.not_replaceable", "shrink"):
        write_shrunk_model(model, folder)
    with raises("output.not_replaceable"):
        check_target(file)
    assert file.read_text() == "years"


@pytest.mark.parametrize(
    "name", ["notes.txt", "below/notes.txt", "model.safetensors", "README.md", "proof.json"]
)
def test_a_file_that_was_added_or_changed_since_keeps_the_folder(model, folder, name):
    check_target(folder)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("mine")
    with raises("output.files_changed", name, "shrink"):
        write_shrunk_model(model, folder)
    assert (folder / name).read_text() == "mine"


def test_the_model_that_is_read_is_not_replaced_by_its_own_smaller_one(
    folder, tmp_path, monkeypatch
):
    model_of_folder = headlab.load(str(folder))
    all_but_first = np.arange(model_of_folder.grid.size) > 0
    with raises("output.is_model"):
        write_shrunk_model(model_of_folder, folder, mask_of(model_of_folder, all_but_first))
    monkeypatch.chdir(tmp_path)
    with raises("output.is_model"):
        check_target(Path("m"), str(folder))
    check_target(Path("m"), "e5-small-intents")


def test_roots_and_the_working_folder_are_refused_in_a_sentence_each(tmp_path, monkeypatch):
    with raises("output.is_root", "/", "give the model a folder of its own"):
        check_target(Path("/"))
    monkeypatch.chdir(tmp_path)
    for working_folder in (Path(), tmp_path, Path("../") / tmp_path.name):
        with raises("output.is_working_folder", "give the model a folder of its own"):
            check_target(working_folder)


def test_a_link_is_followed(model, tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    write_shrunk_model(model, link)
    assert link.is_symlink()
    assert (folder / "proof.json").is_file()
    link_to_nothing_yet = tmp_path / "ahead"
    link_to_nothing_yet.symlink_to(tmp_path / "later")
    write_shrunk_model(model, link_to_nothing_yet)
    assert (tmp_path / "later" / "proof.json").is_file()
    assert names(tmp_path) == ["ahead", "later", "link", "real"]


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    with raises("output.unwritable", "file"):
        check_target(tmp_path / "file" / "m")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with raises("output.link_broken"):
        check_target(tmp_path / "round")


def test_every_file_can_be_read_by_those_who_can_read_any(folder):
    files_of_folder = [path for path in folder.rglob("*") if path.is_file()]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files_of_folder}
    new_file = folder / "new"
    new_file.write_text("")
    assert modes == {stat.S_IMODE(new_file.stat().st_mode)}


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    folder = tmp_path / "m"
    child = os.fork()
    if child == 0:  # killed while it fills its folder
        with replacing_folder(folder) as build:
            (build / "half").write_text("")
            os._exit(9)
    os.waitpid(child, 0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".new"]
    (tmp_path / ".m.notours").mkdir()
    with replacing_folder(folder) as build, replacing_folder(folder) as other_build:
        # neither removes the other's
        (build / "whole").write_text("")
        assert other_build.is_dir()
        assert len(names(tmp_path)) == 3
    assert names(tmp_path) == [".m.notours", "m"]
    assert names(folder) == ["whole"]


def test_where_two_folders_cannot_be_swapped_the_older_one_is_kept_until_there_is_another(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "exchange_folders", lambda *_: False)
    folder = tmp_path / "m"
    with replacing_folder(folder) as build:
        (build / "first").write_text("")
    folder.replace(tmp_path / ".m.abcdefgh.old")  # killed between the two names
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder):
        raise KeyboardInterrupt
    assert names(tmp_path) == [".m.abcdefgh.old"]
    with replacing_folder(folder) as build:
        (build / "second").write_text("")
    with replacing_folder(folder):
        pass
    assert names(tmp_path) == ["m"]


def test_a_name_that_cannot_be_given_brings_the_older_folder_back(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "exchange_folders", lambda *_: False)
    folder = tmp_path / "m"
    with replacing_folder(folder) as build:
        (build / "first").write_text("")
    with raises("file.unwritable"), replacing_folder(folder) as build:
        shutil.rmtree(build)
    assert names(tmp_path) == ["m"]
    assert names(folder) == ["first"]


def test_the_proof_lists_what_was_written(folder):
    listed_files = json.loads((folder / "proof.json").read_text())["files"]
    assert sorted([*listed_files, "proof.json"]) == names(folder)
