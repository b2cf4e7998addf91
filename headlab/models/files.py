"""The files of a model: from the hub or its local cache, and fingerprinted by content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json, unwritable
from headlab.records import content_key

# Fingerprints of models: hashes of the files they are built from.

SAFETENSORS = "*.safetensors"
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


def check_file(path: Path, sha256: str, advice: str) -> None:
    """Raise HeadlabError unless a packaged model's file is the known one. advice: how to get that."""
    if (found := file_sha256(path)) != sha256:
        raise HeadlabError(
            f"{path.name} has sha256 {found[:12]}…, expected {sha256[:12]}…; {advice}", code="model.base_other_file"
        )


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
    files = {folder / "config.json", *(path for pattern in (SAFETENSORS, *TOKENIZER) for path in folder.glob(pattern))}
    return fingerprint_files((path.name, path) for path in files)


# Fetching a model's files from the hub or its local cache: safetensors, configuration and tokenizer only.

LIGHT = ["*.json", "*.txt", "*.model", "*.spm"]  # all but the weights
PATTERNS = [*LIGHT, SAFETENSORS]


def hub_folder(name: str, revision: str | None, patterns: Sequence[str] = PATTERNS) -> Path:
    """Folder of a hub model: the local cache first, then the network.  patterns: of the files that it must have.

    Raises HeadlabError if the model is in neither, or the name is not a hub id.
    """
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except HFValidationError as error:
        raise HeadlabError(
            f"{name!r} is neither an embedded model, nor a folder here, nor a hub id like owner/name",
            code="model.unknown",
        ) from error
    except LocalEntryNotFoundError as error:
        raise HeadlabError(
            f"{name} is not in the local cache, and the hub cannot be reached; pass a folder, or run once with "
            "network access",
            code="hub.unreachable",
        ) from error
    except HfHubHTTPError as error:
        at = f" at revision {revision}" if revision else ""
        raise HeadlabError(
            f"the hub has no model {name}{at} that you may read; check the id, the revision and your token",
            code="hub.model_unknown",
        ) from error
    except httpx.HTTPError as error:
        raise HeadlabError(
            f"{name} could not be fetched completely ({type(error).__name__}); try again, or pass a folder",
            code="hub.fetch_failed",
        ) from error
    except OSError as error:
        raise unwritable(Path(HF_HUB_CACHE), error) from error


def hub_sizes(name: str) -> dict[str, int]:
    """Bytes of every file that the hub has of a model; nothing if it cannot be asked."""
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        found = HfApi().model_info(name, files_metadata=True, timeout=10).siblings or []
    except (HfHubHTTPError, httpx.HTTPError, OSError):  # it is offline, too
        return {}
    return {file.rfilename: file.size or 0 for file in found}


# The model types of transformers that were tried.


def families() -> Mapping[str, Any]:
    """`families`: {model type: gated, why}; `transformers`: its version then."""
    found: Mapping[str, Any] = read_json(Path(str(files("headlab"))) / "models" / "families.json")
    return found
