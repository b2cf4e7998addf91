"""Bringing numbers to a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def on_device(values: torch.Tensor | np.ndarray[Any, Any], device: torch.device) -> torch.Tensor:
    """The values as a tensor on a device.

    The copy to a GPU starts from page-locked memory, so that the processor need not wait until
    the GPU has done what it was given before.

    Args:
        values: An array or a tensor; one that is on the device already is not copied.
        device: Where the values are needed.

    Returns:
        A tensor of the same shape and dtype.
    """
    tensor = torch.as_tensor(values)
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
