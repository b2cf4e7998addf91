"""Attention as it crosses the worker's door."""

from __future__ import annotations

from pathlib import Path

from errors import raises
from saved import save_family

from headlab import load
from headlab.worker.answers import weights_of
from headlab.worker.schemas import AttentionRequest


def test_separators_are_named_by_their_place_and_only_those_that_are_left(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "bert", "bert")))
    heads = [("encoder", 0, 0)]

    def ask(text: str, pair: str | None = None) -> tuple[list[str], list[int]]:
        seen = weights_of(model, AttentionRequest(model="m", text=text, heads=heads, pair=pair))
        return seen.tokens, seen.separators

    assert ask("w5 w6") == (["<s>", "w5", "w6", "</s>"], [3])
    assert ask("w5", "w6 w7") == (["<s>", "w5", "</s>", "w6", "w7", "</s>"], [2, 5])
    tokens, separators = ask(" ".join(["w5"] * 100))
    assert len(tokens) == 64
    assert all(tokens[place] == "</s>" for place in separators)


def test_a_translation_model_shows_its_encoder_and_says_why_not_its_decoder(tmp_path: Path) -> None:
    model = load(str(save_family(tmp_path / "marian", "marian")))
    seen = weights_of(model, AttentionRequest(model="m", text="w5 w6", heads=[("encoder", 1, 2)]))
    assert [len(row) for row in seen.weights["encoder.1.2"]] == [len(seen.tokens)] * len(seen.tokens)
    for stack in ("decoder", "cross"):
        with raises("head.of_translation"):
            weights_of(model, AttentionRequest(model="m", text="w5 w6", heads=[(stack, 0, 0)]))
