"""The notebooks of `examples/notebooks/`, whose code runs cell by cell, with small parameters."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from support.saved_models import letter_tokenizer, save_classifier, save_model
from support.tiny_models import VOCAB

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
PARAMETERS = "parameters"
"""Tag of the cell that holds what a reader changes."""
SHOWN = "value_that_the_cell_shows"


def cells_of(name: str) -> list[dict[str, Any]]:
    content = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def run_notebook(name: str, parameters: dict[str, Any]) -> list[Any]:
    """Run the cells in order, as a kernel does.

    Args:
        name: Of the notebook.
        parameters: Take the place of those in the notebook's own cell.

    Returns:
        The value of each cell that ends in an expression.
    """
    namespace: dict[str, Any] = {}
    shown_values = []
    for cell in cells_of(name):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = ast.Assign([ast.Name(SHOWN, ast.Store())], last.value)
            shown_cell = ast.fix_missing_locations(ast.Module([value], []))
            exec(compile(shown_cell, name, "exec"), namespace)
            shown_values.append(namespace.pop(SHOWN))
        if PARAMETERS in cell["metadata"].get("tags", ()):
            assert set(parameters) <= set(namespace)
            namespace.update(parameters)
    return [value for value in shown_values if value is not None]


def kinds_shown(values: list[Any]) -> list[str]:
    """Types of what the cells show; each shows itself."""
    for value in values:
        assert value._repr_html_()
    return [type(value).__name__ for value in values]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def test_the_notebooks_hold_no_output():
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(paths) == 3
    for path in paths:
        cells = cells_of(path.stem)
        assert not any(cell["outputs"] for cell in cells)
        tags = [cell["metadata"].get("tags", []) for cell in cells]
        assert tags.count([PARAMETERS]) == 1


@pytest.mark.slow
def test_the_notebook_from_map_to_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEADLAB_DEMO")  # conftest.py leaves the demo's results out
    monkeypatch.setenv("HEADLAB_CACHE", str(tmp_path / "cache"))
    values = run_notebook("map_to_mask", {"SIZE": 8})
    assert kinds_shown(values) == ["HeadScores", "DataFrame", "Mask", "Report", "Figure"]
    assert (tmp_path / "mask.json").is_file()


@pytest.mark.slow
def test_the_notebook_on_any_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = save_classifier(tmp_path / "model")
    parameters = {"MODEL": str(folder), "TASK": "intents", "LANGUAGE": "de", "SIZE": 8}
    values = run_notebook("own_model", parameters)
    assert kinds_shown(values) == ["HeadScores", "Mask", "Report"]
    assert len(values[1].removed) == 1
    assert (tmp_path / "mask.json").is_file()
    assert "n=8" in capsys.readouterr().out


@pytest.mark.slow
def test_the_notebook_on_a_decoder(tmp_path: Path):
    config = hf.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=512,  # a list of words twice, a token for each letter
    )
    torch.manual_seed(0)
    folder = save_model(tmp_path / "decoder", hf.LlamaForCausalLM(config), letter_tokenizer())
    values = run_notebook("decoder", {"MODEL": str(folder), "SIZE": 4, "POINTS": 4})
    assert kinds_shown(values) == ["HeadScores", "DataFrame", "Curve", "Mask"]
