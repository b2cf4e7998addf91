"""The folder of a shrunk model, ONNX file included.

It is written beside its target, read back, proved, then moved there.
"""

from __future__ import annotations

import copy
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from headlab.core import (
    HeadlabError,
    JsonRecord,
    as_path,
    do_nothing,
    is_folder,
    json_at,
    read_json,
    set_mode,
    sync_file,
    unwritable_error,
    write_atomic,
    write_json,
)
from headlab.hooks import Model
from headlab.masks import Mask
from headlab.models import (
    DTYPES,
    SAFETENSORS,
    Checkpoint,
    Writer,
    building_alone,
    check_replaced,
    fetched_folder,
    file_hashes,
    pick_device,
    read_folder,
    replacing_folder,
    require_folder,
    resolve_folder,
    software_versions,
)
from headlab.shrink.model import (
    Shrunk,
    bytes_in,
    changes_weights,
    check_dtype,
    checkpoint_dtype,
    dtype_to_write,
    rounded_weights,
)
from headlab.shrink.proof import (
    ExportRecord,
    Inputs,
    MeansOf,
    Proof,
    ProofRecord,
    Speed,
    WeightSizes,
    WrittenRecord,
    check_rounding,
    compare,
    first_tensor,
    model_card,
    players_record,
    prove,
    random_inputs,
    short_name,
)
from headlab.shrink.smaller_vocabulary import covered_batches, renumbered_batch
from headlab.shrink.vocabulary_cut import VocabularyCut

# The folder of a shrunk model: what it may replace, and the state its files are left in.

PROOF = "proof.json"
MASK = "mask.json"
CARD = "README.md"
CONFIG = "config.json"
GGUF_FILE = "model.gguf"
DUO_TABLE = "full_attention_heads.tsv"
SHRINK = Writer(
    "shrink or export",
    ((CONFIG, PROOF, MASK), (GGUF_FILE, PROOF, MASK), (DUO_TABLE, PROOF, MASK)),
    PROOF,
    "give the model a folder of its own, like --out smaller",
)


def check_target(target: Path, model: str | None = None) -> None:
    """Raise HeadlabError unless `target` may be written.

    It may be a new name, an empty folder, or a shrunk model as it was written.

    Args:
        model: Name or folder of the model to shrink, which must not be replaced.
    """
    require_folder(target, SHRINK.advice)
    resolved_target = resolve_folder(target)
    if model is not None and is_folder(model) and Path(model).resolve() == resolved_target:
        raise HeadlabError(
            f"{target} is the model that is shrunk, and would be lost; name another folder with "
            "--out",
            code="output.is_model",
        )
    check_replaced(target, SHRINK)


def finish_folder(folder: Path) -> None:
    """Give all files the same permissions and flush them to disk."""
    # The default of new files; safetensors makes its own private.
    mode = (folder / PROOF).stat().st_mode
    for path in folder.rglob("*"):
        if not path.is_dir():
            set_mode(path, mode)
            with path.open("rb") as file:
                sync_file(file.fileno())


PROOF_VERSION = 1
WRITING = "writing the files"
READING_BACK = "reading them back"
COMPARING = "comparing"
COMPARING_ONNX = "writing and comparing the ONNX file"
# What `begin_step` of the functions that write a folder is told, in this order.


@dataclass(frozen=True)
class WrittenModel:
    """A folder that was written: path, proof, the model's fingerprint, contents of proof.json."""

    folder: Path
    proof: Proof
    fingerprint: str
    record: WrittenRecord


@dataclass(frozen=True)
class Proofs:
    """Comparisons of the model that was read back with the original under the mask.

    Attributes:
        proof: On the examples, with the original as it is.
        random_proof: The same on random input.
        removal_proof: If rounding changed weights, with the original's weights rounded too, which
            shows the removal of heads alone; else None.
    """

    proof: Proof
    random_proof: Proof
    removal_proof: Proof | None


def write_shrunk(
    model: Model,
    shrunk: Shrunk,
    target: Path,
    inputs: Inputs,
    *,
    compared_on: JsonRecord,
    means_of: MeansOf | None = None,
    speed: Speed | None = None,
    onnx: bool = False,
    dtype: str | None = None,
    command: Sequence[str] | None = None,
    tick: Callable[[], None] = do_nothing,
    begin_step: Callable[[str], None] = lambda note: None,
) -> WrittenModel:
    """Write model, tokenizer, mask, model card and proof atomically.

    Before the folder gets its name, the model is read back from it and compared with the masked
    one, in the dtype that `model` was loaded in. Raises HeadlabError if they differ by more than
    rounding, or `target` holds something else.

    Args:
        inputs: Batches of real examples.
        compared_on: What they are (task, languages, ...), for the record.
        means_of: What examples `shrunk.means` were taken on, for the record.
        speed: What was measured, for the card.
        onnx: Also write model.onnx, compared with the masked model on the same inputs.
        dtype: Of the written weights; None: the checkpoint's own.
        command: That writes the same, for the record.
        tick: Called between batches that are compared, where `model` has its own weights; it may
            run the model, and may raise to stop: nothing is left at `target` then.
        begin_step: Called with what begins now, as `WRITING`.
    """
    check_target(target, model.name if model.checkpoint.revision == "folder" else None)
    check_dtype(dtype)
    written_dtype = dtype or dtype_to_write(model)
    if shrunk.cut is not None:
        inputs = covered_batches(inputs, shrunk.cut)
    try:
        with replacing_folder(target) as build:
            begin_step(WRITING)
            _save(shrunk, model, build, written_dtype)
            begin_step(READING_BACK)
            read_back = read_folder(build, "folder", target.name)
            begin_step(COMPARING)
            proofs = _prove_written(model, shrunk, read_back, inputs, target, written_dtype, tick)
            sizes = _weight_sizes(model, shrunk, build, written_dtype)
            record = record_of(
                model,
                shrunk,
                proofs,
                read_back.fingerprint,
                compared_on,
                sizes,
                means_of=means_of,
                command=command,
            )
            if onnx:
                begin_step(COMPARING_ONNX)
                with rounded_weights(model.module, written_dtype):
                    record["onnx"] = write_onnx(
                        read_back.module, build, model, shrunk.mask, inputs, shrunk.cut
                    ).record()
            _copy_modules_of_sentences(model, build)
            write_papers(build, model, shrunk, record, speed)
    except SafetensorError as error:
        raise unwritable_error(target, OSError(0, str(error))) from error
    return WrittenModel(target, proofs.proof, read_back.fingerprint, record)


def write_papers(
    build: Path, model: Model, shrunk: Shrunk, record: WrittenRecord, speed: Speed | None
) -> None:
    """Write the mask, the model card and, last, the proof with the hashes of all files.

    Args:
        build: Folder with the weights.
        model: The original.
        shrunk: The model without the heads.
        record: Contents of proof.json without the list of files.
        speed: What was measured, for the card.
    """
    shrunk.mask.save(build / MASK)
    write_atomic(build / CARD, model_card(model, shrunk, record, speed).encode())
    write_json(build / PROOF, record | {"files": file_hashes(build, PROOF)})
    finish_folder(build)


def load_shrunk(folder: str | Path, device: str | None = None) -> PreTrainedModel:
    """The model in a folder that `headlab shrink` wrote, in evaluation mode, its weights trainable.

    Raises HeadlabError if the folder holds no such model, or only part of it.

    Args:
        device: As in `headlab.load`.
    """
    torch_device = pick_device(device)
    path = as_path("folder", folder)
    if not (path / PROOF).is_file():
        raise HeadlabError(
            f"{folder} is not a folder that headlab shrink wrote (it has no {PROOF}); "
            "headlab.load reads other models",
            code="shrink.not_a_folder",
        )
    module = read_folder(path, "folder", str(folder)).module
    torch.nn.Module.to(module, device=torch_device)
    module.eval()
    return module


def _save(shrunk: Shrunk, model: Model, build: Path, dtype: str) -> None:
    module = shrunk.module
    if module.dtype != DTYPES[dtype]:
        module = copy.deepcopy(module)
        torch.nn.Module.to(module, dtype=DTYPES[dtype])
    with building_alone():
        module.save_pretrained(build)
        try:
            tokenizer = model.tokenizer
            if shrunk.vocabulary is not None:
                tokenizer = shrunk.vocabulary.tokenizer
            tokenizer.save_pretrained(str(build))
        except OSError:
            raise
        except Exception as error:  # the library tokenizers has no class for a full disk
            raise unwritable_error(build.parent, OSError(0, str(error))) from error


def _prove_written(
    model: Model,
    shrunk: Shrunk,
    read_back: Checkpoint,
    inputs: Inputs,
    target: Path,
    dtype: str,
    tick: Callable[[], None],
) -> Proofs:
    """Compare the model that was read back with the original under the mask.

    Args:
        model: The original.
        shrunk: The model without the heads.
        read_back: It, as the new folder has it.
        inputs: Batches of real examples.
        target: Folder that is written.
        dtype: Of its weights.
        tick: Called between batches, but while the original's weights are rounded.

    Raises:
        HeadlabError: They differ by more than rounding.
    """
    torch.nn.Module.to(read_back.module, device=model.device, dtype=model.module.dtype)
    read_back.module.eval()
    random_batches = random_inputs(model, inputs, seed=0, cut=shrunk.cut)
    is_rounded = changes_weights(shrunk.module, dtype)

    def compared(
        module: nn.Module,
        batches: Inputs,
        dtype: str | None = None,
        tick: Callable[[], None] = tick,
    ) -> Proof:
        return prove(
            model,
            shrunk.mask,
            module,
            batches,
            means=shrunk.means,
            dtype=dtype,
            is_rounded=dtype is not None,
            cut=shrunk.cut,
            tick=tick,
        )

    if is_rounded and shrunk.means is not None:
        # What the means add to a bias is rounded with it: heads alone are compared in memory.
        removal_proof = compared(shrunk.module, inputs)
        random_proof = compared(shrunk.module, random_batches)
    else:
        with rounded_weights(model.module, dtype) as original_is_rounded:
            # Whoever is served between batches must not be answered by rounded weights.
            own_tick = do_nothing if original_is_rounded else tick
            removal_proof = compared(read_back.module, inputs, tick=own_tick)
            random_proof = compared(read_back.module, random_batches, tick=own_tick)
    removal_proof.check(f"the model for {target}")
    random_proof.check(f"the model for {target}, on random input,")
    if not is_rounded:
        return Proofs(removal_proof, random_proof, None)
    proof = compared(read_back.module, inputs, dtype)
    random_proof = compared(read_back.module, random_batches, dtype)
    check_rounding(proof, random_proof, dtype, "leave --dtype out")
    return Proofs(proof, random_proof, removal_proof)


SENTENCE_MODULES = "modules.json"
"""What the package sentence-transformers reads first: a model's modules and their folders."""
SENTENCE_SETTINGS = ("config_sentence_transformers.json", "sentence_*_config.json")
"""Patterns of its other files beside the weights."""
WEIGHTED_MODULES = ("Dense", "LSTM", "CNN", "WeightedLayerPooling", "BoW", "WordEmbeddings")
"""Its modules that have weights of their own."""


def _copy_modules_of_sentences(model: Model, build: Path) -> None:
    """Copy what sentence-transformers needs beside the weights, where the original has it.

    Without it that package would pool tokens in its own way.

    Raises:
        HeadlabError: It would not read the pruned model, or lack weights of its own.
    """
    source = model.checkpoint.folder or fetched_folder(model.name, model.checkpoint.revision)
    if source is None or not (source / SENTENCE_MODULES).is_file():
        return
    for pattern in (SENTENCE_MODULES, *SENTENCE_SETTINGS):
        for path in source.glob(pattern):
            shutil.copyfile(path, build / path.name)
    modules = read_json(source / SENTENCE_MODULES)
    for module in modules if isinstance(modules, list) else ():
        folder = (source / str(json_at(module, "path") or "")).resolve()
        # The model itself has no folder of its own.
        if folder.is_dir() and source.resolve() in folder.parents:
            place = folder.relative_to(source.resolve())
            _require_sentence_module(model, folder, str(json_at(module, "type") or ""))
            shutil.copytree(folder, build / place, dirs_exist_ok=True)


def _require_sentence_module(model: Model, folder: Path, kind: str) -> None:
    """Raise HeadlabError for a module of sentence-transformers that a copy would not serve.

    Args:
        model: The original.
        folder: Of the module.
        kind: Its class.
    """
    config = folder / CONFIG
    if config.is_file() and json_at(read_json(config), "model_type"):
        raise HeadlabError(
            f"sentence-transformers reads the weights of {model.name} from its folder "
            f"{folder.name}, which headlab has not pruned; load that folder as the model",
            code="export.sentence_model_elsewhere",
        )
    if kind.endswith(WEIGHTED_MODULES) and not any(folder.glob(SAFETENSORS)):
        raise HeadlabError(
            f"module {folder.name} of {model.name} has no weights as safetensors here, so "
            "sentence-transformers could not read the copy; save the model with "
            "sentence-transformers 3 or newer, and load its folder",
            code="export.sentence_weights_missing",
        )


def record_of(
    model: Model,
    shrunk: Shrunk,
    proofs: Proofs,
    fingerprint: str,
    compared_on: JsonRecord,
    sizes: WeightSizes,
    *,
    means_of: MeansOf | None,
    command: Sequence[str] | None,
) -> WrittenRecord:
    """proof.json without the ONNX file's part and the list of files.

    Args:
        model: The original.
        shrunk: The model without the heads.
        proofs: What was compared.
        fingerprint: Of the written model.
        compared_on: What the examples are.
        sizes: Of the weights.
        means_of: What examples `shrunk.means` were taken on.
        command: That writes the same.
    """
    removal_proof = proofs.removal_proof
    record: ProofRecord = {
        "format": "headlab-proof",
        "version": PROOF_VERSION,
        "form": shrunk.form,
        "command": None if command is None else list(command),
        **proofs.proof.record(),
        "random_input": proofs.random_proof.record(),
        "cut_alone": None if removal_proof is None else removal_proof.record(),
        "compared_on": dict(compared_on),
        "means_of": means_of,
        "computed_in": model.dtype,
        "device": model.device.type,
        "parameters_before": shrunk.parameters_before,
        "parameters_after": shrunk.parameters_after,
        "heads_before": model.head_grid.size,
        "heads_removed": shrunk.removed_count,
        "heads_masked": [list(head) for head in shrunk.masked_heads],
        "model": model.identity() | {"name": short_name(model)},
        "mask": shrunk.mask.digest,
        "fingerprint": fingerprint,
        "versions": software_versions(),
        **sizes,
    }
    written_record = cast("WrittenRecord", record)
    if shrunk.vocabulary is not None:
        written_record["vocabulary"] = shrunk.vocabulary.record()
    players = players_record(model, shrunk)
    if players is not None:
        written_record["players"] = players
    return written_record


def _weight_sizes(model: Model, shrunk: Shrunk, build: Path, dtype_after: str) -> WeightSizes:
    """Dtype and size of the weights, before and after.

    Bytes before are computed from the number of parameters.
    """
    dtype_before = checkpoint_dtype(model)
    return {
        "dtype_before": dtype_before,
        "dtype_after": dtype_after,
        "bytes_before": bytes_in(shrunk.parameters_before, dtype_before),
        "bytes_after": sum(path.stat().st_size for path in build.glob(SAFETENSORS)),
    }


# The same model as an ONNX file, compared with the masked model through onnxruntime.

ONNX_FILE = "model.onnx"
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
CPU_PROVIDERS = ["CPUExecutionProvider"]


@dataclass(frozen=True)
class Exported:
    """An ONNX file and how far onnxruntime's logits are from the masked model's."""

    file: str
    max_logit_difference: float
    tolerance: float
    inputs: tuple[str, ...]
    versions: Mapping[str, str]

    def record(self) -> ExportRecord:
        """The record, ready for JSON."""
        return {
            "file": self.file,
            "max_logit_difference": self.max_logit_difference,
            "tolerance": self.tolerance,
            "inputs": list(self.inputs),
            "versions": dict(self.versions),
        }


class Logits(nn.Module):
    """A model as a function from its inputs to its logits."""

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__()
        self.module = module
        self.options: dict[str, bool] = {}
        if hasattr(module.config, "use_cache") and module.can_generate():
            self.options["use_cache"] = False

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Logits [row, ...]."""
        return first_tensor(self.module(**inputs, **self.options))


def require_onnx(dtype: str) -> None:
    """Raise HeadlabError unless a model of this dtype can be written and run as ONNX here.

    The error has an advice.
    """
    if dtype == "bfloat16":
        raise HeadlabError(
            "onnxruntime does not compute in bfloat16 on a processor; load the model in float32 "
            "to write it as ONNX",
            code="onnx.bfloat16",
        )
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if missing:
        raise HeadlabError(
            f"ONNX export needs {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed; run: pip install "
            "'headlab[onnx]'",
            code="package.onnx_missing",
        )


def write_onnx(
    module: PreTrainedModel,
    folder: Path,
    model: Model,
    mask: Mask,
    inputs: Inputs,
    cut: VocabularyCut | None = None,
) -> Exported:
    """Write model.onnx into a folder and compare it with the model under the mask.

    Both are given the same inputs.

    Numbers of rows and tokens are dynamic.  Raises HeadlabError if a package is missing, the model
    cannot be exported, or the logits differ by more than rounding.
    """
    require_onnx(model.dtype)
    import onnxruntime

    names = tuple(inputs[0]) if inputs else ()
    batch_to_trace = widest_batch(inputs)
    if cut is not None:
        batch_to_trace = renumbered_batch(batch_to_trace, cut)
    _write_onnx_file(module, folder / ONNX_FILE, batch_to_trace)
    session = onnxruntime.InferenceSession(str(folder / ONNX_FILE), providers=CPU_PROVIDERS)
    input_names = [session_input.name for session_input in session.get_inputs()]

    def run_session(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        (session_logits,) = session.run(
            None, {name: batch[name].cpu().numpy() for name in input_names}
        )
        return torch.as_tensor(session_logits)

    proof = compare(model, mask, run_session, inputs, cut=cut)
    proof.check(f"{ONNX_FILE} for {folder.name}")
    return Exported(
        ONNX_FILE,
        proof.max_logit_difference,
        proof.tolerance,
        names,
        {name: version(name) for name in ONNX_PACKAGES},
    )


def widest_batch(inputs: Inputs) -> dict[str, torch.Tensor]:
    """A batch to trace with, of two rows or more: torch treats a dimension of 1 as constant."""
    batch = max(inputs, key=lambda inputs_of_batch: inputs_of_batch["input_ids"].numel())
    return {name: t.repeat(2, 1)[: max(2, len(t))].cpu() for name, t in batch.items()}


def _write_onnx_file(module: PreTrainedModel, path: Path, batch: dict[str, torch.Tensor]) -> None:
    """Write a model as an ONNX file, with dynamic numbers of rows and tokens.

    Args:
        module: The model; it is moved to the CPU and stays there.
        path: The file.
        batch: Model inputs by name, [row, token], that the export traces the model with.

    Raises:
        HeadlabError: The model cannot be exported.
    """
    dynamic = torch.export.Dim.DYNAMIC
    dynamic_shapes = {"inputs": {name: {0: dynamic, 1: dynamic} for name in batch}}
    logits_module = Logits(torch.nn.Module.cpu(module).eval())
    with quiet_exporter(), torch.no_grad():
        try:
            program = torch.onnx.export(
                logits_module,
                kwargs={"inputs": batch},
                dynamic_shapes=dynamic_shapes,
                input_names=list(batch),
                output_names=["logits"],
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.errors.OnnxExporterError as error:
            reason = (str(error.__cause__ or error).splitlines() or [""])[0][:200]
            raise HeadlabError(
                f"{type(module).__name__} cannot be written as ONNX by torch {torch.__version__} "
                f"({reason}); leave --onnx out, the folder without it is complete",
                code="onnx.export_failed",
            ) from error
        assert program is not None
        weight_bytes = sum(
            parameter.numel() * parameter.element_size() for parameter in module.parameters()
        )
        program.save(
            str(path), external_data=weight_bytes >= 1 << 30
        )  # an ONNX file is limited to 2 GB


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence the exporter's messages on missing torchvision and its own deprecated calls."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
