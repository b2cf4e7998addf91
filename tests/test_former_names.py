"""Programs of the version before import modules by their former names, outside of rooms."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from headlab.former_names import ROOMS, present_name

pytestmark = pytest.mark.filterwarnings("ignore:headlab.* is now:DeprecationWarning")
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
    module = import_module(f"headlab.{room}.{name}")
    assert import_module(f"headlab.{name}") is module
    assert module.__name__ == f"headlab.{room}.{name}"
    assert module.__spec__.name == f"headlab.{room}.{name}"


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


def test_a_former_name_warns_at_the_line_of_the_import_and_says_the_present_one(tmp_path):
    """In a process of its own, where nothing has been imported."""
    program = tmp_path / "old.py"
    program.write_text("import headlab\nfrom headlab.records import Head\n")
    command = [sys.executable, "-W", "always::DeprecationWarning", str(program)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (line,) = [line for line in printed.splitlines() if "DeprecationWarning: headlab" in line]
    assert line == (
        f"{program}:2: DeprecationWarning: headlab.records is now headlab.core.records; "
        "its former name works until headlab 1.0"
    )


# What README and docs/ showed before the modules moved.
DOCUMENTED_IMPORTS = """from headlab.bleu import gain
from headlab.cluster.rays import team
from headlab.evaluator import Evaluator
from headlab.generation import Decoding, translated_bleu, translations
from headlab.hooks import sum_weights
from headlab.jobs import Part, TaskJob, estimate, setting
from headlab.methods.run import Outcome
from headlab.methods.table import Method, MethodCost
from headlab.options import Option
from headlab.shrink import shrink_model
from headlab.store import Store
from headlab.studies.pareto import chosen_mask
from headlab.studies.result import Column, Records, StudyResult, TableName
from headlab.studies.run import Pieces, forecast, run_experiment
from headlab.studies.savings_run import measure
from headlab.studies.table import ANY_METHOD, METHOD, METHOD_OPTIONS, OF_METHOD, Experiment
from headlab.tasks import Example, Task
from headlab.training.lm_prune import prune_lm
from headlab.training.lm_text import read_lines
from headlab.training.options import LmGateOptions
from headlab.ui.shell import found, page"""


@pytest.mark.parametrize("statement", DOCUMENTED_IMPORTS.splitlines())
def test_documented_imports_of_the_version_before_work(statement):
    exec(statement, {})


@pytest.mark.parametrize("name", ["headlab.nothing", "headlab.records.nothing", "heads.records"])
def test_what_never_was_is_not_found(name):
    with pytest.raises(ModuleNotFoundError):
        import_module(name)
