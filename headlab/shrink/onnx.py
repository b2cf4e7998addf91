"""A shrunk model as an ONNX file, compared with the masked model through onnxruntime."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headlab.errors import HeadlabError
from headlab.hooks.model import Model
from headlab.masks import Mask
from headlab.shrink.proof import Inputs, compare, first_tensor

FILE = "model.onnx"
NEEDED = ("onnx", "onnxscript", "onnxruntime")
CPU = ["CPUExecutionProvider"]


@dataclass(frozen=True)
class Exported:
    """An ONNX file and how far onnxruntime's logits are from the masked model's."""

    file: str
    max_logit_difference: float
    tolerance: float
    inputs: tuple[str, ...]
    versions: Mapping[str, str]

    def record(self) -> dict[str, Any]:
        """The record, ready for JSON."""
        return asdict(self) | {"inputs": list(self.inputs), "versions": dict(self.versions)}


class Logits(nn.Module):
    """A model as a function from its inputs to its logits."""

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__()
        self.module = module
        self.more = {"use_cache": False} if hasattr(module.config, "use_cache") and module.can_generate() else {}

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits [row, ...]."""
        found: Any = self.module(**inputs, **self.more)
        return first_tensor(found)


def require_onnx(dtype: str) -> None:
    """Raise HeadlabError, with advice, unless a model of this dtype can be written and run as ONNX here."""
    if dtype == "bfloat16":
        raise HeadlabError(
            "onnxruntime computes no bfloat16 on a processor; load the model in float32 to write it as ONNX",
            code="onnx.bfloat16",
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise HeadlabError(
            f"ONNX export needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed; run: "
            "pip install 'headlab[onnx]'",
            code="package.onnx_missing",
        )


def write_onnx(module: PreTrainedModel, folder: Path, model: Model, mask: Mask, inputs: Inputs) -> Exported:
    """Write model.onnx into a folder and compare it with the model under the mask on the same inputs.

    Numbers of rows and tokens are dynamic.  Raises HeadlabError if a package is missing, the model cannot be exported,
    or the logits differ by more than rounding.
    """
    require_onnx(model.dtype)
    import onnxruntime

    names = tuple(inputs[0]) if inputs else ()
    _export(module, folder / FILE, widest(inputs))
    session = onnxruntime.InferenceSession(str(folder / FILE), providers=CPU)
    used = [given.name for given in session.get_inputs()]

    def run(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        (found,) = session.run(None, {name: batch[name].cpu().numpy() for name in used})
        return torch.as_tensor(found)

    proof = compare(model, mask, run, inputs)
    proof.check(f"{FILE} for {folder.name}")
    return Exported(FILE, proof.max_logit_difference, proof.tolerance, names, {name: version(name) for name in NEEDED})


def widest(inputs: Inputs) -> dict[str, torch.Tensor]:
    """A batch to trace with, of two rows or more: torch treats a dimension of 1 as constant."""
    batch = max(inputs, key=lambda b: b["input_ids"].numel())
    return {name: t.repeat(2, 1)[: max(2, len(t))].cpu() for name, t in batch.items()}


def _export(module: PreTrainedModel, path: Path, batch: dict[str, torch.Tensor]) -> None:
    free = torch.export.Dim.DYNAMIC
    shapes = {"inputs": {name: {0: free, 1: free} for name in batch}}
    whole = Logits(torch.nn.Module.cpu(module).eval())
    with quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                whole, kwargs={"inputs": batch}, dynamic_shapes=shapes, input_names=list(batch),
                output_names=["logits"], dynamo=True, verbose=False,
            )  # fmt: skip
        except torch.onnx.errors.OnnxExporterError as error:
            reason = (str(error.__cause__ or error).splitlines() or [""])[0][:200]
            raise HeadlabError(
                f"{type(module).__name__} cannot be written as ONNX by torch {torch.__version__} ({reason}); leave "
                "--onnx out, the folder without it is complete",
                code="onnx.export_failed",
            ) from error
        assert program is not None
        program.save(str(path), external_data=not _small(module))


def _small(module: nn.Module) -> bool:
    """Whether all weights fit into one ONNX file, which is limited to 2 GB."""
    return sum(p.numel() * p.element_size() for p in module.parameters()) < 1 << 30


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's messages about missing torchvision and about its own deprecated calls."""
    import warnings

    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
