"""Loading a checkpoint by name: embedded model, folder or hub id."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from headlab.errors import HeadlabError, out_of_memory, require_type
from headlab.models.allattention.modelling import OWN, make_known
from headlab.models.checkpoint import Checkpoint, alone
from headlab.models.embedded import (
    EMBEDDED,
    base_of,
    fingerprint_delta,
    first_line,
    is_delta,
    read_embedded,
    weights_of,
)
from headlab.models.files import SAFETENSORS, fingerprint_folder, hub_folder
from headlab.models.shrunk_classes import class_named, make_known_folder

ADAPTER = "adapter_config.json"
UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ArithmeticError,
)  # what transformers raises for bad files
KERNELS = (None, "eager", "sdpa")  # attention that every installation of torch can compute
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}


def read(
    name: str | Path, *, revision: str | None = None, device: str | None = None, dtype: str = "float32"
) -> Checkpoint:
    """Load a checkpoint by embedded name, local folder or hub id; arguments as in `headlab.load`."""
    require_type("name", name, (str, Path), "an embedded name, a folder or a hub id")
    name = str(name)
    if dtype not in DTYPES:
        raise HeadlabError(f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}", code="dtype.unknown")
    place = pick_device(device)
    if name in EMBEDDED:
        if revision is not None:
            raise HeadlabError(
                f"{name} is embedded and has one revision; leave the revision out", code="model.revision_fixed"
            )
        read = partial(read_embedded, name)
    else:
        read = partial(read_folder, *_folder_of(name, revision), name)
    try:
        checkpoint = read()
        torch.nn.Module.to(checkpoint.module, device=place, dtype=DTYPES[dtype])
    except (RuntimeError, MemoryError, OSError, HeadlabError) as error:
        if not out_of_memory(error) and not out_of_memory(error.__cause__):
            raise
        raise HeadlabError(
            f"{name} does not fit in the memory of {place}; use a smaller model, another device, or dtype bfloat16",
            code="memory.model_too_large",
        ) from error
    checkpoint.module.eval().requires_grad_(False)
    return checkpoint


def pick_device(device: str | None) -> torch.device:
    """The requested device, by default a GPU if there is one. Raises HeadlabError if it cannot be used."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        raise HeadlabError(
            f"device {device!r} cannot be used here ({first_line(error)}); use cpu, or leave the device out",
            code="device.unusable",
        ) from error
    return chosen


def _folder_of(name: str, revision: str | None) -> tuple[Path, str]:
    if name and Path(name).is_dir():
        return Path(name), "folder"
    try:
        folder = hub_folder(name, revision)
    except HeadlabError as error:
        if "/" in name:
            raise
        raise HeadlabError(f"{error}; embedded here: {', '.join(EMBEDDED)}", code=error.code) from error
    return folder, folder.name


def read_folder(folder: Path, revision: str, name: str) -> Checkpoint:
    """Load a Hugging Face folder with the class its config names, or a folder of changes to the embedded base.

    Raises HeadlabError if it lacks safetensors weights, any weight of the model, a readable config, a
    known class or a tokenizer, or holds an adapter.
    """
    if not any(folder.glob(SAFETENSORS)):
        raise HeadlabError(
            f"{name} has no safetensors weights; headlab reads no pickled weights, so convert it to safetensors first",
            code="model.no_safetensors",
        )
    if (folder / ADAPTER).exists():
        raise HeadlabError(
            f"{name} holds an adapter, not a whole model; merge it into its base and save that", code="model.is_adapter"
        )
    make_known()
    changes = is_delta(folder)
    try:
        make_known_folder(folder)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        try:
            tokenizer, problem = _tokenizer(base_of(folder) if changes else folder, name), None
        except HeadlabError as error:
            tokenizer, problem = None, error  # what is wrong with the weights goes first
        _settle(config, tokenizer)
        with alone():
            module = _complete(_class_of(config, name), config, folder, name)
    except (*UNREADABLE, RuntimeError, SafetensorError, StrictDataclassError) as error:
        zero = "a number in its configuration, such as that of its heads, is 0"
        reason = zero if isinstance(error, ZeroDivisionError) else first_line(error)
        raise HeadlabError(
            f"{name} cannot be read as a Hugging Face model: {reason}", code="model.unreadable"
        ) from error
    if problem is not None:
        raise problem
    identity = fingerprint_delta(folder) if changes else fingerprint_folder(folder)
    return Checkpoint(str(name), revision, identity, module, tokenizer)


def _settle(config: Any, tokenizer: Any) -> None:
    """Undo settings of a configuration that depend on where and how it was saved, and change no output.

    A padding token that only the tokenizer names; an attention kernel that may not be installed here; feed-forward
    layers computed in pieces, which needs sentences of a suitable length.
    """
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        if getattr(part, "pad_token_id", None) is None and tokenizer is not None:
            part.pad_token_id = tokenizer.pad_token_id
        if part._attn_implementation not in KERNELS:
            part._attn_implementation = None
        if getattr(part, "chunk_size_feed_forward", 0):
            part.chunk_size_feed_forward = 0


def _complete(found: Any, config: Any, folder: Path, name: str) -> PreTrainedModel:
    """The model with all its weights. Raises HeadlabError for missing ones, which transformers would randomise."""
    weights = {"state_dict": weights_of(folder)} if is_delta(folder) else {"use_safetensors": True}
    try:
        loaded: tuple[PreTrainedModel, dict[str, Any]] = found.from_pretrained(
            None if is_delta(folder) else folder, config=config, output_loading_info=True, ignore_mismatched_sizes=True,
            **weights,
        )  # fmt: skip
    except HeadlabError as error:  # a shrunk model whose configuration lists heads it does not have
        raise HeadlabError(
            f"{name} was written incorrectly: {error}; shrink the model again", code=error.code
        ) from error
    module, told = loaded
    absent = sorted({*told["missing_keys"], *(key for key, *_ in told["mismatched_keys"])})
    if absent:
        raise HeadlabError(
            f"{name} lacks {len(absent)} weights its config asks for, or has them in another shape ({absent[0]}…); "
            "use a complete model",
            code="model.weights_missing",
        )
    return module


def _class_of(config: Any, name: str) -> type[PreTrainedModel]:
    given = config.architectures
    named = str(given[0]) if isinstance(given, list) and given else "none"
    found = OWN.get(named) or class_named(config, named) or getattr(transformers, named, None)
    if not (isinstance(found, type) and issubclass(found, PreTrainedModel)):
        raise HeadlabError(
            f"{name} names the class {named}, which transformers {transformers.__version__} does not have; "
            "use a model whose class it has",
            code="model.class_unknown",
        )
    return found


def _tokenizer(folder: Path, name: str) -> Any:
    try:
        with alone():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except ImportError as error:
        raise HeadlabError(
            f"the tokenizer of {name} needs a package that is not installed ({first_line(error)}); translation "
            "models take "
            "pip install 'headlab[translation]'",
            code="tokenizer.package_missing",
        ) from error
    except Exception as error:
        # The packages tokenizers and sentencepiece raise just these.
        if not isinstance(error, (*UNREADABLE, RuntimeError)) and type(error) is not Exception:
            raise
        raise HeadlabError(
            f"{name} has no tokenizer that can be read ({first_line(error)}); save one into its folder",
            code="tokenizer.unreadable",
        ) from error
    # if its files are missing, transformers creates a tokenizer with an empty vocabulary
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise HeadlabError(
            f"{name} lacks the tokenizer's vocabulary; save its tokenizer into its folder",
            code="tokenizer.vocabulary_missing",
        )
    return tokenizer
