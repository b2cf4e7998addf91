"""Two devices that no machine has: tensors on the CPU that claim to be on one of them."""

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
from support.device_spreads import all_results
from support.tiny_task import tiny_task

FIRST_DEVICE = "pretended:0"
SECOND_DEVICE = (
    "lazy:0"  # torch leaves the first to others to define, and nothing here uses the second
)
CPU = torch.device("cpu")
COPIES = ("_to_copy", "copy_")
INDEXING = ("index", "index_put_", "_index_put_impl_")
# Copies "to the device" and "to the processor" since it was cleared.
COPY_COUNTS: Counter[str] = Counter()


class PretendedTensor(torch.Tensor):
    """A tensor that claims to be on a pretended device.

    Attributes:
        value: The same tensor on the CPU.
    """

    value: torch.Tensor

    @staticmethod
    def __new__(
        cls, value: Any, device: torch.device | None = None, requires_grad: bool = False
    ) -> PretendedTensor:
        if device is None:  # accelerate makes a weight from another
            return value  # type: ignore[no-any-return]
        tensor: PretendedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            value.size(),
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        tensor.value = value
        return tensor

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def tolist(self) -> Any:
        COPY_COUNTS["to the processor"] += 1
        return self.value.tolist()

    def data_ptr(self) -> int:
        return self.value.data_ptr()  # accelerate recognises tied weights by it

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute_on_cpu(func, args, kwargs or {})


class PretendedDevices(TorchDispatchMode):
    """While active, FIRST and SECOND are devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute_on_cpu(func, args, kwargs or {})


def compute_on_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU.

    Raises:
        RuntimeError: For tensors of several devices, as torch does.
    """
    name = str(func).split(".")[1]
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    count_copies(name, tensors, kwargs)
    # A number on the CPU may be mixed with tensors of any device.
    devices = {t.device for t in tensors if t.dim() or t.device != CPU}
    if name in INDEXING and tensors[0].device != CPU:
        devices -= {CPU}  # indices may be on the CPU
    if len(devices) > 1 and name not in COPIES:
        raise RuntimeError(f"Expected all tensors to be on the same device: {func} on {devices}")
    if len(devices) == 1:
        result_device = devices.pop()
    elif tensors:
        result_device = tensors[0].device
    else:
        result_device = CPU
    if kwargs.get("device") is not None:
        result_device = kwargs["device"]
        kwargs = kwargs | {"device": result_device if result_device.type == "meta" else CPU}
    result = func(*_cpu_values(args), **_cpu_values(kwargs))
    if name.endswith("_") and not name.endswith("__"):
        return args[0]
    if str(result_device) in (FIRST_DEVICE, SECOND_DEVICE):
        return tree_map_only(torch.Tensor, lambda t: PretendedTensor(t, result_device), result)
    return result


def count_copies(name: str, tensors: list[torch.Tensor], kwargs: dict[str, Any]) -> None:
    """Count what an operation copies between the processor and a pretended device."""
    on_device = [tensor.device.type != "cpu" for tensor in tensors]
    if name == "_local_scalar_dense" and on_device[0]:
        COPY_COUNTS["to the processor"] += 1
    elif name == "_to_copy" and kwargs.get("device") is not None:
        target_on_device = torch.device(kwargs["device"]).type != "cpu"
        if target_on_device != on_device[0]:
            COPY_COUNTS["to the device" if target_on_device else "to the processor"] += 1
    elif name == "copy_" and on_device[0] != on_device[1]:
        COPY_COUNTS["to the device" if on_device[0] else "to the processor"] += 1
    elif name in INDEXING and on_device[0]:
        COPY_COUNTS["to the device"] += on_device[1:].count(False)


def _cpu_values(tree: Any) -> Any:
    return tree_map_only(PretendedTensor, lambda t: t.value, tree)


def pretend() -> None:
    """Make FIRST and SECOND known to torch in this process, for good."""
    _setup_privateuseone_for_python_backend("pretended")
    operations = {"empty_strided": _empty, "empty.memory_format": _empty, "copy_": _copy}
    for key in ("PrivateUse1", "Lazy"):  # torch does not ask the active mode for a list of indices
        for name, operation in operations.items():
            torch.library.impl(f"aten::{name}", key)(operation)
    torch.inference_mode = lambda mode=True: torch.set_grad_enabled(not mode)  # type: ignore[misc, assignment]
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"  # a mode is active in one thread only


def _empty(size: Any, *_: Any, dtype: torch.dtype, device: torch.device, **__: Any) -> torch.Tensor:
    return PretendedTensor(torch.empty(size, dtype=dtype), device)


def _copy(target: torch.Tensor, source: torch.Tensor, _: bool = False) -> torch.Tensor:
    _cpu_values(target).copy_(_cpu_values(source))
    return target


def results_on_two_devices(folder: Path, devices: dict[str, str]) -> dict[str, Any]:
    """All that headlab computes with the model in a folder, spread over both devices.

    It needs a process of its own.

    Args:
        folder: Of the model.
        devices: Device of each part of the model.
    """
    pretend()
    with PretendedDevices():
        model = headlab.load(folder, device_map=devices)
        assert {str(weight.device) for weight in model.module.parameters()} == {
            FIRST_DEVICE,
            SECOND_DEVICE,
        }
        facts = {"grid": model.grid, "resumable": (model.resumable, model.first_token)}
        return facts | all_results(model)


# Copies between the processor and a pretended device.


def copies_of_a_cycle(folder: Path, examples: int) -> dict[str, dict[str, int]]:
    """How often a cycle of draws copies to and from the device, by question.

    It needs a process of its own.

    Args:
        folder: Of the model.
        examples: Number of examples; the cycle has one draw for each.
    """
    pretend()
    with PretendedDevices(), torch.no_grad():
        model = headlab.load(folder, device_map={"": FIRST_DEVICE})
        evaluator = Evaluator(model, tiny_task(), "xx", "dev", examples)
        game = ModelGame(evaluator, tokens=1 << 20)
        rng = np.random.default_rng(0)
        coalitions = rng.random((examples, game.players)) < 0.7
        all_players = np.ones_like(coalitions)
        rows = np.arange(examples)
        assert game.scale is not None
        halvings = np.ones((game.scale.bins, game.players), np.int64)
        uniforms = rng.random(coalitions.shape)
        questions = {
            "marginals": lambda: game.marginals(coalitions, all_players, rows),
            "screened": lambda: game.screened(coalitions, all_players, rows, halvings, uniforms),
        }
        counts = {}
        for name, question in questions.items():
            question()  # copies what all cycles share
            COPY_COUNTS.clear()
            question()
            counts[name] = dict(COPY_COUNTS)
        return counts
