"""The files of a model: from the hub or its local cache, and a fingerprint of their content.

Folders are written atomically.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypedDict, cast

from headlab.core import (
    CHOOSE_HUB_CACHE,
    CHOOSE_WRITABLE_FOLDER,
    HeadlabError,
    content_key,
    file_mode,
    is_abandoned,
    is_disk_error,
    lock_descriptor,
    make_folder,
    read_json,
    require_known_home,
    set_mode,
    sync_folder,
    unwritable_error,
)

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
    """Raise HeadlabError unless a packaged model's file is the known one.

    Args:
        advice: How to get that.
    """
    actual_sha256 = file_sha256(path)
    if actual_sha256 != sha256:
        raise HeadlabError(
            f"{path.name} has sha256 {actual_sha256[:12]}…, expected {sha256[:12]}…; {advice}",
            code="model.base_other_file",
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
            f"cannot read {path.name} ({error.strerror}); check the model's folder",
            code="model.file_unreadable",
        ) from error
    return digest.hexdigest()


def fingerprint_files(parts: Iterable[tuple[str, Path]]) -> str:
    """sha256 over (name, sha256 of the file) pairs, in name order."""
    return content_key(sorted([name, file_sha256(path)] for name, path in parts))


@dataclass(frozen=True)
class FolderIdentity:
    """What a folder's files are known by.

    Attributes:
        fingerprint: Of the files that are loaded.
        former: Fingerprints under which earlier versions recorded the same model, as they counted
            files that are not.
    """

    fingerprint: str
    former: tuple[str, ...] = ()


def identify_folder(folder: Path, loaded_weights: Collection[str]) -> FolderIdentity:
    """The identity of a Hugging Face folder.

    It is of its config.json, its tokenizer and the safetensors that are loaded.

    Args:
        folder: of the files.
        loaded_weights: names of the safetensors files that are loaded; if none of them is in the
            folder, all count.

    Raises:
        HeadlabError: a file that counts cannot be read.
    """
    tokenizer_files = [path for pattern in TOKENIZER for path in folder.glob(pattern)]
    weights = set(folder.glob(SAFETENSORS))
    loaded_files = {path for path in weights if path.name in loaded_weights} or weights
    hashes = {
        path: file_sha256(path)
        for path in {folder / "config.json", *tokenizer_files, *loaded_files}
    }
    fingerprint = _hash_of_hashes(hashes)
    unused_files = weights - loaded_files - {*tokenizer_files}
    if not unused_files:
        return FolderIdentity(fingerprint)
    try:
        hashes |= {path: file_sha256(path) for path in unused_files}
    except HeadlabError:  # earlier versions could not load it either
        return FolderIdentity(fingerprint)
    return FolderIdentity(fingerprint, (_hash_of_hashes(hashes),))


def _hash_of_hashes(hashes: Mapping[Path, str]) -> str:
    return content_key(sorted([path.name, digest] for path, digest in hashes.items()))


# Files of weights that headlab does not read, by how their names end.
CONVERTED_FORMATS = {
    ".gguf": "GGUF",
    ".ggml": "GGML",
    ".onnx": "ONNX",
    ".ort": "ONNX",
    "openvino_model.xml": "OpenVINO",
    "openvino_model.bin": "OpenVINO",
    ".tflite": "TensorFlow Lite",
    ".mlmodel": "Core ML",
    ".engine": "TensorRT",
    ".npz": "NumPy",
    ".h5": "TensorFlow",
    ".msgpack": "Flax",
}
PICKLE_ENDINGS = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def no_safetensors(file_names: Iterable[str], name: str) -> HeadlabError:
    """The error for a model without safetensors weights, with the weights that it has instead.

    Args:
        file_names: of the model's files, those of folders in it by their paths.
        name: the model, in messages.
    """
    names = sorted(file_names, key=lambda file: (file.count("/"), file))
    for ending, kind in CONVERTED_FORMATS.items():
        converted_files = [file for file in names if file.lower().endswith(ending)]
        if converted_files:
            return HeadlabError(
                f"{name} has no safetensors weights, but weights of {kind} "
                f"({converted_files[0]}), which headlab does not read; use the safetensors "
                "checkpoint that they were converted from",
                code="model.no_safetensors",
            )
    pickled_files = [file for file in names if file.endswith(PICKLE_ENDINGS) and "/" not in file]
    remark = ""
    if pickled_files:
        remark = f", only pickled ones ({pickled_files[0]})"
    return HeadlabError(
        f"{name} has no safetensors weights{remark}; headlab reads no pickled weights, so convert "
        "it to safetensors first",
        code="model.no_safetensors",
    )


def require_safetensors(folder: Path, name: str) -> None:
    """Raise HeadlabError for a model without safetensors weights."""
    if not any(folder.glob(SAFETENSORS)):
        paths = [*folder.glob("*"), *folder.glob("*/*")]
        raise no_safetensors([path.relative_to(folder).as_posix() for path in paths], name)


# Fetching a model's files from the hub or its local cache: safetensors, configuration and tokenizer
# only.

LIGHT = ["*.json", "*.txt", "*.model", "*.spm"]  # all but the weights
PATTERNS = [*LIGHT, SAFETENSORS]
# the same weights, for the code of the model's authors
NEVER_LOADED = [
    "consolidated*.safetensors",
    "original/*",
]


def hub_folder(name: str, revision: str | None, patterns: Sequence[str] = PATTERNS) -> Path:
    """Folder of a hub model: the local cache first, then the network.

    Raises HeadlabError if the model is in neither, or the name is not a hub id.

    Args:
        patterns: Of the files that it must have.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    require_known_home(HF_HUB_CACHE, CHOOSE_HUB_CACHE)
    try:
        folder = snapshot_download(
            name, revision=revision, allow_patterns=list(patterns), ignore_patterns=NEVER_LOADED
        )
        return Path(folder)
    except HFValidationError as error:
        raise HeadlabError(
            f"{name!r:.100} is neither an embedded model, nor a folder here, nor a hub id like "
            "owner/name",
            code="model.unknown",
        ) from error
    except LocalEntryNotFoundError as error:
        raise HeadlabError(
            f"{name} is not in the local cache, and the hub cannot be reached; pass a folder, or "
            "run once with network access",
            code="hub.unreachable",
        ) from error
    except HfHubHTTPError as error:
        at_revision = f" at revision {revision}" if revision else ""
        raise HeadlabError(
            f"the hub has no model {name}{at_revision} that you may read; check the id, the "
            "revision and your token",
            code="hub.model_unknown",
        ) from error
    except Exception as error:  # the hub's client has a client of its own, and that another one
        if is_disk_error(error):
            raise unwritable_error(Path(HF_HUB_CACHE), error, CHOOSE_HUB_CACHE) from error
        raise HeadlabError(
            f"{name} could not be fetched completely ({type(error).__name__}); try again, or pass "
            "a folder",
            code="hub.fetch_failed",
        ) from error


def fetched_folder(name: str, revision: str | None = None) -> Path | None:
    """Folder of a hub model whose files are on this machine, without asking the hub; else None.

    Args:
        name: Of the model.
        revision: Branch or commit; None for the main branch.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    except Exception:  # no hub id, not fetched, or a cache that cannot be read
        return None


def hub_sizes(name: str) -> dict[str, int]:
    """Bytes of every file that the hub has of a model; nothing if it cannot be asked."""
    from huggingface_hub import HfApi

    try:
        hub_files = HfApi().model_info(name, files_metadata=True, timeout=10).siblings or []
    except Exception:  # whatever its client raises where it cannot be asked
        return {}
    return {file.rfilename: file.size or 0 for file in hub_files}


def hub_shapes(name: str) -> dict[str, tuple[int, ...]] | None:
    """{name: shape} of the weights that the hub has of a model, from the headers of its files.

    None if unknown.
    """
    from huggingface_hub import get_safetensors_metadata

    try:
        metadata = get_safetensors_metadata(name)
    except Exception:  # whatever its client raises where it cannot be asked, or has no such headers
        return None
    shapes = {}
    for file in metadata.files_metadata.values():
        for weight, info in file.tensors.items():
            shapes[weight] = tuple(info.shape)
    return shapes


# The model types of transformers that were tried.


class TriedFamily(TypedDict):
    """A model type that was tried.

    Attributes:
        gated: Whether its heads can be gated.
        why: The class and stacks that were tried, or the reason why they cannot be gated.
    """

    gated: bool
    why: str


class TriedFamilies(TypedDict):
    """The model types that were tried.

    Attributes:
        transformers: The version of transformers that they were tried with.
        families: What was found, by model type.
    """

    transformers: str
    families: dict[str, TriedFamily]


def tried_families() -> TriedFamilies:
    """The model types that were tried, from headlab's own files."""
    path = Path(str(files("headlab"))) / "models" / "families.json"
    return cast(TriedFamilies, read_json(path))


# A folder written atomically: filled under a temporary name beside its target, then renamed.

STALE = 3600.0  # seconds after which a folder without a lock counts as abandoned
# Suffixes of a folder being filled, and of the one it replaces.
NEW_SUFFIX = ".new"
OLD_SUFFIX = ".old"
# Linux's AT_FDCWD and RENAME_EXCHANGE.
AT_WORKING_FOLDER = -100
EXCHANGE = 2


def require_folder(target: Path, advice: str) -> None:
    """Raise HeadlabError for a disk root, the working directory or an unusable path.

    The error has an advice.
    """
    resolved_target = resolve_folder(target)
    # What is written could not be read back under this name.
    if ".." in target.parts and not target.parent.exists():
        raise HeadlabError(
            f"{target} leads through a folder that does not exist; give {resolved_target}",
            code="output.parent_missing",
        )
    if not resolved_target.name:
        raise HeadlabError(f"{target} is the root of a disk; {advice}", code="output.is_root")
    if resolved_target == Path.cwd():
        raise HeadlabError(
            f"{target} is the folder you work in; {advice}", code="output.is_working_folder"
        )


def resolve_folder(target: Path) -> Path:
    """The absolute path, links followed.

    Raises HeadlabError for a link that leads back to itself.
    """
    try:
        return target.resolve()
    except (OSError, RuntimeError) as error:
        raise HeadlabError(
            f"{target} is a broken link; name another folder with --out", code="output.link_broken"
        ) from error


def checkpoint_beside(target: Path, key: str) -> Path:
    """Path of a training's checkpoint, beside `target`; it is used until the folder is written."""
    resolved_target = resolve_folder(target)
    return resolved_target.with_name(f".{resolved_target.name}-{key[:12]}.checkpoint.safetensors")


@contextmanager
def replacing_folder(
    target: Path,
    stays: Callable[[Path], bool] = lambda _: False,
    way_on: str = CHOOSE_WRITABLE_FOLDER,
) -> Iterator[Path]:
    """Yield a new folder to fill.

    It replaces `target` when the block ends, or is deleted if the block raises.

    Links are followed.  Leftovers of killed processes beside `target` are removed.

    Args:
        target: the folder.
        stays: whether a folder that another process has put there meanwhile stays, and the new one
            is deleted.
        way_on: what to do if the folder cannot be written.

    Raises:
        HeadlabError: the folder cannot be written.
    """
    target = resolve_folder(target)
    try:
        make_folder(target.parent)
        _sweep(target)
        build, descriptor = _new_locked_folder(target)
    except OSError as error:
        raise unwritable_error(target, error, way_on) from error
    try:
        yield build
        if not stays(target):
            try:
                _move_into_place(build, target)
            except OSError:
                if not stays(target):
                    raise
        sync_folder(target.parent)
    except OSError as error:
        raise unwritable_error(target, error, way_on) from error
    finally:
        shutil.rmtree(build, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def _move_into_place(build: Path, target: Path) -> None:
    """Rename a finished folder to `target`.

    The folder it replaces is left under the other name, or deleted.
    """
    if not target.exists():
        build.replace(target)
    elif not exchange_folders(build, target):
        old_folder = build.with_suffix(OLD_SUFFIX)
        target.replace(old_folder)
        try:
            build.replace(target)
        except OSError:
            old_folder.replace(target)
            raise
        shutil.rmtree(old_folder, ignore_errors=True)


def exchange_folders(first: Path, second: Path) -> bool:
    """Swap two folders atomically; False if the system or the disk cannot."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    status: int = renameat2(
        AT_WORKING_FOLDER, os.fsencode(first), AT_WORKING_FOLDER, os.fsencode(second), EXCHANGE
    )
    return status == 0


def _new_locked_folder(target: Path) -> tuple[Path, int | None]:
    """A new folder to fill, and its lock.

    The lock is a descriptor that is open while a live process uses the folder; None on Windows.
    """
    while True:
        build = Path(
            tempfile.mkdtemp(prefix=f".{target.name}.", suffix=NEW_SUFFIX, dir=target.parent)
        )
        descriptor = _folder_descriptor(build)
        if descriptor is not None:
            lock_descriptor(descriptor, wait=True)
        if build.is_dir():  # not swept away before it was locked
            set_mode(build, 0o755)
            return build, descriptor
        if descriptor is not None:
            os.close(descriptor)


def _folder_descriptor(folder: Path) -> int | None:
    """Descriptor of a folder; None on Windows, which opens no folders."""
    try:
        return os.open(folder, os.O_RDONLY)
    except OSError:
        return None


def _sweep(target: Path) -> None:
    """Remove abandoned folders for `target`, and replaced ones if `target` exists.

    Earlier versions named folders that they filled without a suffix, and did not lock them.
    """
    suffixes = f"{re.escape(NEW_SUFFIX)}|{re.escape(OLD_SUFFIX)}"
    name_pattern = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}(?:{suffixes})?")
    with suppress(OSError):  # another process may be sweeping too, or access is denied
        for leftover in list(target.parent.iterdir()):
            if not name_pattern.fullmatch(leftover.name) or not leftover.is_dir():
                continue
            if leftover.suffix not in (OLD_SUFFIX, NEW_SUFFIX):
                if time.time() - leftover.stat().st_mtime > STALE:
                    shutil.rmtree(leftover, ignore_errors=True)
            elif leftover.suffix == OLD_SUFFIX:
                if target.exists():
                    shutil.rmtree(leftover, ignore_errors=True)
            else:
                _remove_abandoned(leftover)


def _remove_abandoned(build: Path) -> None:
    """Remove a folder that was being filled, unless a live process still fills it."""
    descriptor = _folder_descriptor(build)
    if descriptor is None:
        return
    try:
        if is_abandoned(build, descriptor):
            shutil.rmtree(build, ignore_errors=True)
    finally:
        os.close(descriptor)


# What a folder may replace: nothing, or the unchanged output of the same kind of run.

MAX_LISTED = 3  # file names listed in a message


@dataclass(frozen=True)
class Writer:
    """A kind of run that writes folders.

    Attributes:
        name: In messages.
        identifying_files: Sets of files; a folder with all files of one set is of this kind.
        record: The one of these files that lists the others, under `files`, with their sha256.
        advice: Advice if `out` cannot be used.
        option: That names the folder.
    """

    name: str
    identifying_files: tuple[tuple[str, ...], ...]
    record: str
    advice: str
    option: str = "--out"


def check_replaced(target: Path, writer: Writer) -> None:
    """Raise HeadlabError unless `target` may be replaced.

    It may if it is a new name, an empty folder, or a folder as the writer left it.
    """
    require_folder(target, writer.advice)
    resolved_target = resolve_folder(target)  # replacing it follows links and .. too
    if file_mode(resolved_target) is None:
        parent = next(folder for folder in resolved_target.parents if folder.exists())
        return _require_writable(target, parent, writer.option)
    if resolved_target.is_dir() and not any(resolved_target.iterdir()):
        return None
    is_of_writer = any(
        all((resolved_target / name).is_file() for name in names)
        for names in writer.identifying_files
    )
    if not resolved_target.is_dir() or not is_of_writer:
        raise HeadlabError(
            f"{target} exists and holds nothing that {writer.name} made, so it is not replaced; "
            f"name another folder with {writer.option}",
            code="output.not_replaceable",
        )
    changed_files = _changed_files(target, resolved_target, writer)
    if changed_files:
        be = "are"
        it = "them"
        files = "the files"
        if len(changed_files) == 1:
            be = "is"
            it = "it"
            files = "the file"
        raise HeadlabError(
            f"{target} holds {_list_files(changed_files)}, which {be} not as {writer.name} wrote "
            f"{it}, so the folder is not replaced; move {files} away, or name another folder with "
            f"{writer.option}",
            code="output.files_changed",
        )
    return None


def file_hashes(folder: Path, record: str) -> dict[str, str]:
    """{path relative to the folder: sha256} of every file in a folder except its record."""
    paths_by_name: dict[str, Path] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name != record:
            paths_by_name[name] = path
    return {name: file_sha256(path) for name, path in sorted(paths_by_name.items())}


def _changed_files(target: Path, resolved_target: Path, writer: Writer) -> list[str]:
    """Files added to the folder, or changed, since it was written."""
    try:
        record: object = read_json(resolved_target / writer.record)
    except HeadlabError:
        return [writer.record]
    recorded_hashes = record.get("files") if isinstance(record, dict) else None
    if not isinstance(recorded_hashes, dict):
        raise HeadlabError(
            f"{target} does not say which of its files {writer.name} wrote ({writer.record} of an "
            "older version, or changed), so it is not replaced; delete it if nothing in it is "
            f"yours, or name another folder with {writer.option}",
            code="output.record_unreadable",
        )
    return [
        name
        for name, file_hash in file_hashes(resolved_target, writer.record).items()
        if recorded_hashes.get(name) != file_hash
    ]


def _list_files(files: list[str]) -> str:
    unlisted = len(files) - MAX_LISTED
    listed_files = ", ".join(files[:MAX_LISTED])
    if unlisted > 0:
        return f"{listed_files} and {unlisted} more"
    return listed_files


def _require_writable(target: Path, parent: Path, option: str) -> None:
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise HeadlabError(
            f"cannot write {target}: {parent} is not a folder you may write to; name another with "
            f"{option}",
            code="output.unwritable",
        )
