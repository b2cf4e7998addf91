"""Two devices that no machine has: tensors on the CPU that say they are on one of them, and that refuse to be mixed."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import headlab
from headlab.evaluation import Evaluator
from headlab.methods.model_game import ModelGame
from support.device_spreads import everything
from support.tiny_task import tiny_task

FIRST = "pretended:0"
SECOND = "lazy:0"  # one that torch leaves to others to define, and one that nothing here uses
CPU = torch.device("cpu")
COPIES = ("_to_copy", "copy_")
PICKING = ("index", "index_put_", "_index_put_impl_")
# copies "to the device" and "to the processor" since it was cleared
COPIED: Counter[str] = Counter()


class Elsewhere(torch.Tensor):
    """A tensor that says it is on a pretended device.

    Attributes:
        value: The same on the CPU.
    """

    value: torch.Tensor

    @staticmethod
    def __new__(
        cls, value: Any, device: torch.device | None = None, requires_grad: bool = False
    ) -> Elsewhere:
        if device is None:  # accelerate makes a weight like another
            return value  # type: ignore[no-any-return]
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            value.size(),
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        made.value = value
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def tolist(self) -> Any:
        COPIED["to the processor"] += 1
        return self.value.tolist()

    def data_ptr(self) -> int:
        return self.value.data_ptr()  # by which accelerate knows tied weights

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Pretended(TorchDispatchMode):
    """While active, FIRST and SECOND are devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation, computed on the CPU. Raises RuntimeError, as torch does, for tensors of several devices."""
    name = str(func).split(".")[1]
    given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    count_copies(name, given, kwargs)
    # a number on the CPU goes with everything
    on = {t.device for t in given if t.dim() or t.device != CPU}
    if name in PICKING and given[0].device != CPU:
        on -= {CPU}  # indices may be there
    if len(on) > 1 and name not in COPIES:
        raise RuntimeError(f"Expected all tensors to be on the same device: {func} on {on}")
    place = on.pop() if len(on) == 1 else given[0].device if given else CPU
    if kwargs.get("device") is not None:
        place = kwargs["device"]
        kwargs = kwargs | {"device": place if place.type == "meta" else CPU}
    out = func(*_values(args), **_values(kwargs))
    if name.endswith("_") and not name.endswith("__"):
        return args[0]
    if str(place) in (FIRST, SECOND):
        return tree_map_only(torch.Tensor, lambda t: Elsewhere(t, place), out)
    return out


def count_copies(name: str, tensors: list[torch.Tensor], kwargs: dict[str, Any]) -> None:
    """Count what an operation copies between the processor and a pretended device."""
    elsewhere = [tensor.device.type != "cpu" for tensor in tensors]
    if name == "_local_scalar_dense" and elsewhere[0]:
        COPIED["to the processor"] += 1
    elif name == "_to_copy" and kwargs.get("device") is not None:
        target_elsewhere = torch.device(kwargs["device"]).type != "cpu"
        if target_elsewhere != elsewhere[0]:
            COPIED["to the device" if target_elsewhere else "to the processor"] += 1
    elif name == "copy_" and elsewhere[0] != elsewhere[1]:
        COPIED["to the device" if elsewhere[0] else "to the processor"] += 1
    elif name in PICKING and elsewhere[0]:
        COPIED["to the device"] += sum(not there for there in elsewhere[1:])


def _values(given: Any) -> Any:
    return tree_map_only(Elsewhere, lambda t: t.value, given)


def pretend() -> None:
    """Make FIRST and SECOND known to torch in this process, for good."""
    _setup_privateuseone_for_python_backend("pretended")
    for key in ("PrivateUse1", "Lazy"):  # for a list of indices, torch asks no mode
        for name, made in {
            "empty_strided": _empty,
            "empty.memory_format": _empty,
            "copy_": _copy,
        }.items():
            torch.library.impl(f"aten::{name}", key)(made)
    torch.inference_mode = lambda mode=True: torch.set_grad_enabled(not mode)  # type: ignore[misc, assignment]
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # a mode is of one thread


def _empty(size: Any, *_: Any, dtype: torch.dtype, device: torch.device, **__: Any) -> torch.Tensor:
    return Elsewhere(torch.empty(size, dtype=dtype), device)


def _copy(to: torch.Tensor, source: torch.Tensor, _: bool = False) -> torch.Tensor:
    _values(to).copy_(_values(source))
    return to


def apart(folder: Path, devices: dict[str, str]) -> dict[str, Any]:
    """All that headlab computes with the model in a folder, on these devices.  For a process of its own."""
    pretend()
    with Pretended():
        model = headlab.load(folder, device_map=devices)
        assert {str(weight.device) for weight in model.module.parameters()} == {FIRST, SECOND}
        return {"grid": model.grid, "resumable": (model.resumable, model.first_token)} | everything(
            model
        )


# What is copied between the processor and a pretended device.


def copies_of_a_cycle(folder: Path, examples: int) -> dict[str, dict[str, int]]:
    """How often a cycle of draws copies to and from the device, by question.  For a process of its own.

    Args:
        examples: Of the cycle, which has a draw for each.
    """
    pretend()
    with Pretended(), torch.no_grad():
        model = headlab.load(folder, device_map={"": FIRST})
        evaluator = Evaluator(model, tiny_task(), "xx", "dev", examples)
        game = ModelGame(evaluator, tokens=1 << 20)
        rng = np.random.default_rng(0)
        kept = rng.random((examples, game.players)) < 0.7
        wanted = np.ones_like(kept)
        rows = np.arange(examples)
        assert game.scale is not None
        halvings = np.ones((game.scale.bins, game.players), np.int64)
        numbers = rng.random(kept.shape)
        questions = {
            "marginals": lambda: game.marginals(kept, wanted, rows),
            "screened": lambda: game.screened(kept, wanted, rows, halvings, numbers),
        }
        counts = {}
        for name, ask in questions.items():
            ask()  # what is copied once for all cycles
            COPIED.clear()
            ask()
            counts[name] = dict(COPIED)
        return counts
