"""Models that give no gradient, as those with quantised weights may."""

from __future__ import annotations

from typing import Any

import pytest
import torch


def forbid_gradients(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """Let a module, or all modules of a class, compute without the graph of a gradient."""
    forward = module.forward

    def forward_without_gradient(*arguments: object, **named: object) -> object:
        with torch.no_grad():
            return forward(*arguments, **named)

    monkeypatch.setattr(module, "forward", forward_without_gradient)
