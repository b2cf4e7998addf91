"""Programs of the version before import modules by the names these had before they moved into rooms."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from headlab.former_names import ROOMS, present_name

NEEDS_A_PACKAGE = {"lm_eval"}  # the module imports lm-evaluation-harness when it is imported


@pytest.mark.parametrize(
    ("room", "name"),
    [
        (room, name)
        for room, names in ROOMS.items()
        for name in names
        if name not in NEEDS_A_PACKAGE
    ],
)
def test_a_module_is_the_same_by_its_former_name(room, name):
    present = import_module(f"headlab.{room}.{name}")
    assert import_module(f"headlab.{name}") is present
    assert present.__name__ == f"headlab.{room}.{name}"
    assert present.__spec__.name == f"headlab.{room}.{name}"


def test_a_part_of_a_package_is_found_by_its_former_name():
    assert present_name("headlab.store.codecs") == "headlab.results.store.codecs"
    assert import_module("headlab.store.codecs") is import_module("headlab.results.store.codecs")


def test_a_class_is_one_class_by_either_name():
    """In a process of its own, where the former name comes first."""
    program = (
        "from headlab.store import Store\n"
        "from headlab.records import Head\n"
        "import headlab.results, headlab.core\n"
        "assert Store is headlab.results.Store and Head is headlab.core.Head\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", ["headlab.nothing", "headlab.records.nothing", "heads.records"])
def test_what_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError):
        import_module(name)
