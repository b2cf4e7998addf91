"""The table of a curve job on the Jobs page, whatever its players are."""

from __future__ import annotations

from pathlib import Path

from support.saved_models import save_classifier

from headlab.cli.run import main
from headlab.dashboard.pages.jobs import results
from headlab.results import Store


def test_curves_of_players_have_a_table(tmp_path: Path) -> None:
    model = save_classifier(tmp_path / "tiny")
    command = ["curve", "--model", str(model), "--languages", "de", "--players", "layers"]
    command += ["--method", "leave-one-out", "--size", "8", "--dev-size", "8"]
    assert main([*command, "--cache", str(tmp_path / "cache")]) == 0
    (curve,) = Store(tmp_path / "cache").curves(None).results
    table = results.curve_table(tmp_path / "cache", (curve.key,))
    assert table is not None
    assert table.columns[-1] == "layers"
