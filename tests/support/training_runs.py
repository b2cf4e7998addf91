"""Trainings that are stopped on the way, and the weights that they write."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from headlab.training import LmStep
from headlab.training.steps import Watch


class Stop(Exception):
    """Somebody pressed Ctrl-C."""


def stop_after(last_step: int, part: str = "training") -> Watch[LmStep]:
    """Keeps the state after every step and stops the run after the last step.

    Args:
        last_step: Number of the step within its part.
        part: Name of a part of the run, as its progress has it.
    """

    def on_step(step: LmStep) -> None:
        if step.part == part and step.step == last_step:
            raise Stop

    return Watch(on_step, checkpoint_every=1, checkpoint_share=1.0)


def model_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights in a model's folder."""
    weights: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return weights


def assert_same_weights(folder: Path, other_folder: Path) -> None:
    """The models of two folders have the same weights, to the bit."""
    weights = model_weights(folder)
    other_weights = model_weights(other_folder)
    assert weights.keys() == other_weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, other_weights[name]), name
