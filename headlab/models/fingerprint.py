"""Naming a model by the bytes it was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from headlab.errors import HeadlabError
from headlab.records import content_key

WEIGHTS = "*.safetensors"
TOKENIZER = (
    "tokenizer*.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "special_tokens_map.json",
    "added_tokens.json",
)
BLOCK = 1 << 20


def file_sha256(path: Path) -> str:
    """sha256 (hex) of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path.name} ({error.strerror}); check the model's folder", code="model.file_unreadable"
        ) from error
    return digest.hexdigest()


def fingerprint_files(parts: Iterable[tuple[str, Path]]) -> str:
    """sha256 over (name, sha256 of the file) pairs, in name order."""
    return content_key(sorted([name, file_sha256(path)] for name, path in parts))


def fingerprint_folder(folder: Path) -> str:
    """Fingerprint of a Hugging Face folder: its config.json, its tokenizer and every safetensors file."""
    files = {folder / "config.json", *(path for pattern in (WEIGHTS, *TOKENIZER) for path in folder.glob(pattern))}
    return fingerprint_files((path.name, path) for path in files)
