"""The base that a training starts from, and the folder it writes."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.core import (
    Evaluation,
    HeadlabError,
    JsonLike,
    JsonObject,
    JsonRecord,
    first_line,
    is_folder,
    needs_extra,
    read_json,
    write_atomic,
    write_json,
)
from headlab.models import (
    BASE_NAME,
    BASE_SHA256,
    LoadingInfo,
    LoadReport,
    TokenNeeds,
    Writer,
    base_folder,
    building_alone,
    check_replaced,
    file_hashes,
    fit_weights,
    folder_shapes,
    forget_renames,
    hub_folder,
    identity_of,
    judge_report,
    key_mapping,
    replacing_folder,
    require_safetensors,
)
from headlab.models.embedded import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    ANSWERS_WORDS,
    DELTA_FILE,
    LABELS_FILE,
    TRAINING_FILE,
    cache_folder,
    is_delta,
    load_classifier,
)
from headlab.models.quantised import (
    dequantise_module,
    dequantising_options,
    quantisation_of,
    quantised_reading,
    shows_fit_in_headers,
)
from headlab.models.special_ids import config_padding_id
from headlab.stats import share_interval
from headlab.training.options import FinetuneOptions
from headlab.training.steps import State

if TYPE_CHECKING:  # it comes with the extra `train`
    from peft import PeftModel

# The base of a training: the embedded one, or any encoder from the hub or a folder.

EMBEDDED_BASE = "multilingual-e5-small"
WHAT_CLASSES_DO = {
    "ForSequenceClassification": "classify texts",
    "ForTokenClassification": "label words",
}


@dataclass(frozen=True)
class Base:
    """A model without its classification head.

    Attributes:
        sha256: Of its files.
        embedded: It ships with the package.
    """

    name: str
    folder: Path
    sha256: str
    embedded: bool = False


def embedded_base(folder: Path | None = None) -> Base:
    """The base that ships with the package, in its folder on this machine.

    Raises HeadlabError if there is none.
    """
    return Base(BASE_NAME, folder or base_folder(cache_folder()), BASE_SHA256, True)


def find_base(name: str | None = None, revision: str | None = None) -> Base:
    """A base by folder or hub id; None or the embedded base's name selects that one.

    Raises HeadlabError if it is not found, has no safetensors weights, or is only an adapter or
    changed weights.
    """
    if name is None or name == EMBEDDED_BASE:
        return embedded_base()
    is_local = is_folder(name)
    folder = Path(name) if is_local else hub_folder(name, revision)
    if (folder / ADAPTER_CONFIG).exists() or is_delta(folder):
        raise HeadlabError(
            f"{name} holds only the weights that a training changed, not a whole model; give the base model it "
            "started from",
            code="model.base_is_delta",
        )
    require_safetensors(folder, name)
    # no local path goes into the record
    name_in_record = folder.resolve().name if is_local else name
    return Base(name_in_record, folder, identity_of(folder).fingerprint)


# What transformers raises for bad files; torch asserts that the padding token is one of the
# vocabulary.
UNTRAINABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    AssertionError,
    SafetensorError,
)


def load_base(
    base: Base, labels: Sequence[str], words: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base with a new classification head, float32; and its tokenizer.

    The head is drawn from torch's generator.

    Raises HeadlabError for a base that cannot be read, is not an encoder, lacks weights, or was
    fine-tuned for another kind of answer.

    Args:
        words: A head that labels tokens, else one for whole texts.
    """
    if base.embedded:
        return load_classifier(base.folder, labels, words=words)
    auto = AutoModelForTokenClassification if words else AutoModelForSequenceClassification
    try:
        config = AutoConfig.from_pretrained(
            base.folder,
            trust_remote_code=False,
            id2label=dict(enumerate(labels)),
            label2id={name: i for i, name in enumerate(labels)},
        )
        check_kind(base, config, words)
        with building_alone():
            module, info = _read_base(auto, base, config, {})
            report = LoadReport.from_loading_info(info)
            if not report.is_clean:
                shapes = folder_shapes(base.folder, config)
                title = f"the base {base.name}"
                if shows_fit_in_headers(config, base.name):
                    fit = fit_weights(type(module), config, shapes, title, with_new_head=True)
                else:
                    fit = judge_report(module, report, shapes, title, with_new_head=True)
                if fit.renames:
                    module, _ = _read_base(auto, base, config, fit.renames)
                    forget_renames(module, fit.renames)
            tokenizer = AutoTokenizer.from_pretrained(base.folder, trust_remote_code=False)
    except UNTRAINABLE as error:
        raise HeadlabError(
            f"the base {base.name} cannot be trained on: {first_line(error)}",
            code="model.base_untrainable",
        ) from error
    name_padding(tokenizer, module.config)
    check_tokenizer(base, tokenizer, words)
    draw_head(module)
    return module, tokenizer


def _read_base(
    auto: Any, base: Base, config: Any, renames: Mapping[str, str]
) -> tuple[PreTrainedModel, LoadingInfo]:
    """The base's weights in a class with a new head, and what transformers reports of them.

    Args:
        auto: the Auto class of the kind of answer.
        base: where the weights are.
        config: the base's configuration, with the new labels.
        renames: as in `headlab.models.weights.WeightFit`.
    """
    devices = dequantising_options(config, base.name)
    quantisation = quantisation_of(config, base.name)
    with quantised_reading(quantisation, base.name):
        module, info = auto.from_pretrained(
            base.folder,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            key_mapping=key_mapping(renames),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **devices,
        )
        if quantisation is not None:
            module = dequantise_module(module)
    return module, info


def check_kind(base: Base, config: PretrainedConfig, words: bool) -> None:
    """Raise HeadlabError for an encoder-decoder, or a base fine-tuned for other answers."""
    if config.is_encoder_decoder:
        raise HeadlabError(
            f"{base.name} is an encoder-decoder model; finetune trains encoders, so choose one",
            code="model.base_encoder_decoder",
        )
    needed_ending = "ForTokenClassification" if words else "ForSequenceClassification"
    for architecture in config.architectures or []:
        for ending, does in WHAT_CLASSES_DO.items():
            if str(architecture).endswith(ending) and ending != needed_ending:
                raise HeadlabError(
                    f"{base.name} was fine-tuned to {does}, but the task needs it to {WHAT_CLASSES_DO[needed_ending]}; give the base "
                    "model instead",
                    code="model.base_tuned_otherwise",
                )


def name_padding(tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
    """Give a tokenizer without a padding token that of the base's configuration, if any."""
    padding = config_padding_id(config)
    if tokenizer.pad_token is None and padding is not None and padding < len(tokenizer):
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding)


def check_tokenizer(base: Base, tokenizer: PreTrainedTokenizerBase, words: bool) -> None:
    """Raise HeadlabError if the base's tokenizer cannot pad, or cannot map tokens to words."""
    if tokenizer.pad_token is None:
        raise HeadlabError(
            f"the tokenizer of {base.name} has no padding token; set pad_token and save it there",
            code="tokenizer.no_padding",
        )
    if words and not tokenizer.is_fast:
        raise HeadlabError(
            f"the tokenizer of {base.name} does not say which word a token belongs to; use a fast tokenizer",
            code="tokenizer.words_unknown",
        )


def heads(module: PreTrainedModel) -> list[nn.Module]:
    """The modules that a classifier has above its encoder."""
    return [child for name, child in module.named_children() if name != module.base_model_prefix]


@torch.no_grad()
def draw_head(module: PreTrainedModel) -> None:
    """Draw new weights from torch's generator for everything above the encoder.

    Weights that the base has there are replaced.

    Not with `nn.init`: while it loads a model, in any thread, transformers makes those functions
    skip loaded weights.
    """
    spread = float(getattr(module.config, "initializer_range", 0.02))
    for part in (part for head in heads(module) for part in head.modules()):
        if isinstance(part, nn.Linear):
            part.weight.normal_(0.0, spread)
        elif isinstance(part, nn.LayerNorm):
            part.weight.fill_(1.0)
        else:
            continue
        if part.bias is not None:
            part.bias.zero_()


def freeze(module: PreTrainedModel, embeddings: bool, layers: int) -> None:
    """Freeze the embeddings and the lowest layers.

    Raises HeadlabError if there are not that many layers.
    """
    encoder = module.base_model
    if layers:
        stack = layers_of(encoder)
        if layers > len(stack):
            raise HeadlabError(
                f"asked to freeze {layers} layers, but the base has {len(stack)}",
                code="training.freeze_out_of_range",
            )
        for layer in stack[:layers]:
            layer.requires_grad_(False)
    if embeddings or layers:
        for name, parameter in encoder.named_parameters():
            if "embedding" in name:
                parameter.requires_grad_(False)


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """The encoder's layers, lowest first. Raises HeadlabError if they are not in one list."""
    config: Any = encoder.config
    for part in encoder.modules():
        if isinstance(part, nn.ModuleList) and len(part) == config.num_hidden_layers:
            return part
    raise HeadlabError(
        f"the layers of {type(encoder).__name__} cannot be found; leave freeze_layers out",
        code="training.layers_not_found",
    )


# The folder that a fine-tuning writes: weights, labels and how they were made.

LIBRARIES = ("torch", "transformers", "peft", "tokenizers", "numpy")
TAIL = 20  # steps whose mean loss is recorded as the final one
WEIGHTS_FILE = "model.safetensors"
MODEL_CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
DIGITS = 6  # decimals of accuracy intervals: finer than resampling can resolve
TRAINER = Writer(
    "a training",
    ((ADAPTER_CONFIG, LABELS_FILE, TRAINING_FILE), (MODEL_CONFIG, TRAINING_FILE)),
    TRAINING_FILE,
    "give the result a folder of its own, like --out adapter",
)


@dataclass(frozen=True)
class TrainingOutput:
    """A training's output, ready to be written.

    Attributes:
        weights: Tensors by name.
        weights_file: Name of the file that they are written to.
        json_files: Contents of JSON files by name.
        tokenizer: Of a model that needs one in its folder.
        tokenizer_settings: What tokenizer_config.json says beyond the tokenizer's own settings.
    """

    weights: Mapping[str, torch.Tensor]
    weights_file: str
    json_files: Mapping[str, JsonRecord]
    tokenizer: PreTrainedTokenizerBase | None = None
    tokenizer_settings: JsonRecord = field(default_factory=dict)


def adapter_output(
    model: PeftModel, labels: Sequence[str], words: bool, base_name: str
) -> TrainingOutput:
    """An adapter: the LoRA weights and the classification head."""
    with needs_extra("train"):
        from peft import get_peft_model_state_dict

    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    labels_file = {"labels": list(labels), "prefix": ""} | (
        {"answers": ANSWERS_WORDS} if words else {}
    )
    return TrainingOutput(
        independent_copies(weights),
        ADAPTER_WEIGHTS,
        {ADAPTER_CONFIG: adapter_config(model, base_name), LABELS_FILE: labels_file},
    )


def changed_output(
    module: PreTrainedModel, changed_weights: Mapping[str, torch.Tensor]
) -> TrainingOutput:
    """The changed weights of the embedded base."""
    return TrainingOutput(
        independent_copies(changed_weights), DELTA_FILE, {MODEL_CONFIG: model_config(module)}
    )


def whole_output(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, needs: TokenNeeds | None = None
) -> TrainingOutput:
    """A whole model, in transformers' format.

    Args:
        module: The trained model.
        tokenizer: Its tokenizer.
        needs: What it was given in training beyond the tokenizer's output, which its folder then
            says.
    """
    json_files = {MODEL_CONFIG: model_config(module)}
    # only models that generate text have one
    generation = getattr(module, "generation_config", None)
    if generation is not None:
        json_files[GENERATION] = json.loads(generation.to_json_string(use_diff=True))
    settings = {} if needs is None else needs.settings(tokenizer)
    return TrainingOutput(
        independent_copies(untied_weights(module)), WEIGHTS_FILE, json_files, tokenizer, settings
    )


def untied_weights(module: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights, tied ones once, under the name that transformers ties the others to."""
    weights: dict[str, torch.Tensor] = module.state_dict()
    tied: Mapping[str, str] = module.all_tied_weights_keys
    return {
        name: t
        for name, t in weights.items()
        if not _share_memory(t, weights.get(tied.get(name, "")))
    }


def _share_memory(tensor: torch.Tensor, other_tensor: torch.Tensor | None) -> bool:
    return (
        other_tensor is not None
        and tensor.data_ptr() == other_tensor.data_ptr()
        and tensor.shape == other_tensor.shape
    )


def independent_copies(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Independent copies of tensors in main memory.

    Later changes to the model do not affect them.
    """
    return {
        name: t.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, t in weights.items()
    }


def model_config(module: PreTrainedModel) -> JsonObject:
    """The model's configuration with its class, without local paths."""
    facts: JsonObject = json.loads(module.config.to_json_string(use_diff=True))
    return dict(sorted((facts | {"architectures": [type(module).__name__]}).items()))


def adapter_config(model: PeftModel, base_name: str) -> JsonObject:
    """PEFT's own description, sorted, with the base's name instead of a local path."""
    facts: JsonObject = {}
    for name, value in model.peft_config["default"].to_dict().items():
        facts[name] = sorted(value) if isinstance(value, set | list) else value
    facts["base_model_name_or_path"] = base_name
    facts["inference_mode"] = True
    return dict(sorted(facts.items()))


def training_record(
    options: FinetuneOptions, state: State, *, base: Base, data: tuple[int, str], device: str
) -> dict[str, JsonLike]:
    """How a model was made, ready for JSON.

    Args:
        data: Number of examples, sha256.
    """
    return {
        "options": options.record(),
        "base": {"name": base.name, "sha256": base.sha256},
        "data": {"examples": data[0], "sha256": data[1]},
        **how_it_went(state, device),
        "versions": versions_of(LIBRARIES),
    }


def how_it_went(state: State, device: str) -> JsonObject:
    """How a training went: losses, seconds, device and threads."""
    limit = {"rows_that_fitted": state.row_limit} if state.row_limit else {}
    return {
        "loss": {"first": state.losses[0], "last": float(np.mean(state.losses[-TAIL:]))},
        "seconds": round(state.seconds, 1),
        "device": device,
        "threads": torch.get_num_threads(),
        **limit,
    }


def versions_of(libraries: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of those of the given libraries that are installed."""
    versions = {"python": platform.python_version()}
    for name in libraries:
        with suppress(PackageNotFoundError):  # peft is only there with the extra `train`
            versions[name] = version(name)
    return versions


def measured_record(evaluations: Mapping[str, Evaluation]) -> dict[str, JsonLike]:
    """Accuracy by language, with its 95 % interval and the number of answers.

    The interval is resampled by group.
    """
    if not evaluations:
        return {"accuracy": {}}

    def interval(evaluation: Evaluation) -> list[float]:
        return [
            round(end, DIGITS)
            for end in share_interval(
                evaluation.correct, evaluation.groups, np.random.default_rng(0)
            )
        ]

    return {
        "accuracy": {language: evaluation.accuracy for language, evaluation in evaluations.items()},
        "interval": {
            language: interval(evaluation) for language, evaluation in evaluations.items()
        },
        "answers": {language: evaluation.n for language, evaluation in evaluations.items()},
    }


def write_folder(out: Path, output: TrainingOutput, record: JsonRecord) -> None:
    """Write a trained model's folder, atomically, in place of an older one.

    Args:
        out: The folder.
        output: What is written.
        record: How the model was trained, for training.json.

    Raises:
        HeadlabError: The folder cannot be written.
    """
    with replacing_folder(out) as build:
        if output.tokenizer is not None:
            output.tokenizer.save_pretrained(str(build))
            _add_settings(build / TOKENIZER_CONFIG, output.tokenizer_settings)
        write_atomic(
            build / output.weights_file, save(dict(output.weights), metadata={"format": "pt"})
        )
        for name, value in output.json_files.items():
            write_json(build / name, dict(value))
        write_json(build / TRAINING_FILE, {**record, "files": file_hashes(build, TRAINING_FILE)})


def _add_settings(file: Path, settings: JsonRecord) -> None:
    """Add settings to a JSON file; without any it stays as it is, byte by byte."""
    if settings:
        earlier = cast("JsonObject", read_json(file))
        write_json(file, {**earlier, **settings})


def copy_folder(source: Path, out: Path) -> None:
    """Copy a finished folder, as `write_folder` writes one. Raises HeadlabError."""
    with replacing_folder(out) as build:
        shutil.copytree(source, build, dirs_exist_ok=True)


def check_out(out: Path) -> None:
    """Raise HeadlabError unless `out` may be written.

    It may be a new name, an empty folder, or the result of a training to replace.
    """
    check_replaced(out, TRAINER)
