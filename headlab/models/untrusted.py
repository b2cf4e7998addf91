"""Reading the files of a model that anybody may have written.

What is looked at before they are read: that each is a file, that their numbers are those of a
model, and that the class which they name does not grow beyond the weights that are there. What
libraries raise meanwhile is made a sentence by `headlab.core.errors.errors_as_headlab_errors`.
"""

from __future__ import annotations

import json
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)

from headlab.core import HeadlabError, is_text

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# Before anything is read.

# How the names of files end that transformers or tokenizers reads if they are there.
READ_IF_THERE = (".json", ".txt", ".model", ".spm", ".jinja", ".safetensors")


def require_readable_names(folder: Path, name: str) -> None:
    """Raise HeadlabError for a file that no reading would end of, or whose name is no text.

    Args:
        folder: of the model.
        name: the model, in messages.
    """
    for path in sorted(folder.iterdir()):
        if not path.name.endswith(READ_IF_THERE):
            continue
        if not is_text(path.name):
            raise HeadlabError(
                f"{name} has a file whose name is not text ({path.name!a}); give it another name, "
                "or take it away",
                code="model.file_name_not_text",
            )
        if _is_endless(path):
            raise HeadlabError(
                f"{name}: {path.name} is a pipe or a device, not a file; put a file there, or "
                "take it away",
                code="model.not_a_file",
            )


def _is_endless(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # a link to nothing, or to itself: reading it ends at once
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


# Before a configuration is built: transformers makes a list of as many elements as it says.

COUNT = re.compile(r"(^|_)(layers?|labels|blocks|stages)$")
MAX_COUNT = 100_000


def require_possible_counts(folder: Path, name: str) -> None:
    """Raise HeadlabError for a config.json that asks for more layers or labels than any model has.

    Args:
        folder: of the model.
        name: the model, in messages.
    """
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):  # transformers says what is wrong with it
        return
    for key, count in _counts(config):
        if count > MAX_COUNT:
            raise HeadlabError(
                f"{name} cannot be read as a Hugging Face model: config.json has {key} = "
                f"{str(count)[:20]}, more than any model has; use the config.json that it was "
                "saved with",
                code="model.unreadable",
            )


def _counts(config: object) -> Iterator[tuple[str, int]]:
    """Every number of layers or labels in a configuration, and in those inside it."""
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        for key, value in part.items():
            if isinstance(value, dict | list):
                waiting.append(value)
            elif isinstance(value, int) and COUNT.search(key):
                yield key, value


# While a class is built: its weights take no memory yet, but those that no file has would.

# A class may have a weight several times that is stored once, and a byte may hold several numbers.
TIMES_STORED = 4
NUMBERS_A_BYTE = 8
# Numbers beside those that are stored: of positions, of a new head.
WEIGHT_ALLOWANCE = 1 << 22
# Numbers in buffers, of which few are stored: GPT-Neo has a mask of 2,048 x 2,048 in each layer,
# StarCoder one of 8,192 x 8,192, however few weights there are.
BUFFER_ALLOWANCE = 1 << 28


def can_be_built(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    refusal: type[Exception] = Exception,
) -> bool:
    """Whether a class can be built with a configuration; tried without memory.

    Args:
        kind: The class.
        config: The configuration.
        refusal: What the class raises where it cannot; other errors are not caught. By default any,
            as a class that reads what is not there raises anything.
    """
    try:
        with torch.device("meta"):
            kind(config)
    except refusal:
        return False
    return True


class _Overgrown(Exception):
    """The class has more numbers than can belong to the weights that are there."""


def _overgrown_error(module: nn.Module, key: str, tensor: torch.Tensor) -> _Overgrown:
    return _Overgrown(f"{type(module).__name__}.{key} is {list(tensor.shape)}")


@dataclass
class _Allowance:
    """How many numbers a class may still take."""

    left: int

    def is_exceeded_by(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has more numbers than are left; they are taken from the allowance."""
        self.left -= tensor.numel()
        return self.left < 0


@contextmanager
def growing_no_larger(stored_bytes: int, name: str) -> Iterator[None]:
    """Stop building a class in this thread once it is far larger than the weights that are there.

    Without this, a wrong number in a configuration fills the memory: transformers makes up the
    weights that it asks for, and only then does anybody learn that they are not in the files.

    Args:
        stored_bytes: size of the files of weights.
        name: the model, in messages.

    Raises:
        HeadlabError: the class is too large.
    """
    largest_weight = NUMBERS_A_BYTE * stored_bytes + WEIGHT_ALLOWANCE
    all_weights = _Allowance(TIMES_STORED * stored_bytes + WEIGHT_ALLOWANCE)
    all_buffers = _Allowance(TIMES_STORED * stored_bytes + BUFFER_ALLOWANCE)
    thread = threading.get_ident()

    def is_built_here(tensor: torch.Tensor | None) -> TypeGuard[torch.Tensor]:
        return tensor is not None and tensor.is_meta and threading.get_ident() == thread

    def count_weight(module: nn.Module, key: str, weight: torch.Tensor | None) -> None:
        if is_built_here(weight) and (
            all_weights.is_exceeded_by(weight) or weight.numel() > largest_weight
        ):
            raise _overgrown_error(module, key, weight)

    def count_buffer(module: nn.Module, key: str, buffer: torch.Tensor | None) -> None:
        if is_built_here(buffer) and all_buffers.is_exceeded_by(buffer):
            raise _overgrown_error(module, key, buffer)

    hooks = [
        register_module_parameter_registration_hook(count_weight),
        register_module_buffer_registration_hook(count_buffer),
    ]
    try:
        yield
    except _Overgrown as error:
        raise HeadlabError(
            f"{name} lacks most of the weights that its config.json asks for: its files have "
            f"{stored_bytes / 1e6:,.1f} MB, and with {error} it would be far larger; use the "
            "config.json that it was saved with",
            code="model.weights_missing",
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
