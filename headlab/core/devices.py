"""Bringing numbers to a device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


def on_device(values: torch.Tensor | npt.NDArray[np.generic], device: torch.device) -> torch.Tensor:
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
