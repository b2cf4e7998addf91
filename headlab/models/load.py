"""Loading a checkpoint by name: embedded model, folder or hub id."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypedDict, Unpack

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headlab.core import (
    HeadlabError,
    as_sentence,
    errors_as_headlab_errors,
    first_line,
    is_folder,
    is_out_of_memory,
    read_json,
    require_type,
)
from headlab.masks import FOLDER_REVISION
from headlab.models.allattention.modelling import OWN_CLASSES, make_known
from headlab.models.checkpoint import Checkpoint, building_alone
from headlab.models.embedded import (
    DELTA_FILE,
    EMBEDDED,
    TRAINING_FILE,
    adapter_folder,
    base_of,
    fingerprint_delta,
    is_delta,
    named_as_in_classifier,
    read_embedded,
    read_labels,
    weights_of,
)
from headlab.models.files import (
    LIGHT,
    SAFETENSORS,
    fetched_folder,
    hub_folder,
    hub_shapes,
    hub_sizes,
    no_safetensors,
    require_safetensors,
    tried_families,
)
from headlab.models.quantised import (
    DeviceOptions,
    dequantise_module,
    dequantising_options,
    quantisation_of,
    quantised_reading,
    require_described,
    shows_fit_in_headers,
)
from headlab.models.shrunk_classes import class_named, make_known_folder
from headlab.models.shrunk_cut import PREFIX as SHRUNK
from headlab.models.special_ids import check_named_tokens, generation_padding, is_known_token
from headlab.models.tokenising import classifies_words, state_earlier_training
from headlab.models.untrusted import (
    can_be_built,
    growing_no_larger,
    require_possible_counts,
    require_readable_names,
)
from headlab.models.weights import (
    SINGLE,
    LoadReport,
    fit_weights,
    folder_shapes,
    forget_renames,
    identity_of,
    integer_weights,
    judge_report,
    key_mapping,
    named_weight_file,
    stored_shapes,
    weight_files,
    with_loading_info,
)
from headlab.tasks import Task, match_before_examples

ADAPTER = "adapter_config.json"
MAX_BYTES_A_NUMBER = 4  # of a number in a file of weights that headlab loads
FLOAT_BYTES = 4  # of a weight in float32, in which models are loaded
KERNELS = (None, "eager", "sdpa")  # attention that every installation of torch can compute
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
# By which accelerate spreads a model over devices.
STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
DeviceMap = str | Mapping[str, str | int]


def read_model(
    name: str | Path,
    *,
    revision: str | None = None,
    device: str | None = None,
    dtype: str = "float32",
    device_map: DeviceMap | None = None,
) -> Checkpoint:
    """Load a checkpoint by embedded name, local folder or hub id.

    Arguments as in `headlab.load`.
    """
    require_type("name", name, (str, Path), "an embedded name, a folder or a hub id")
    name = str(name)
    if dtype not in DTYPES:
        raise HeadlabError(
            f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}", code="dtype.unknown"
        )
    target_device = pick_device(device)
    device_options: DeviceOptions = {}
    if device_map is not None:
        check_map(device_map, name, device)
        plain_map = device_map if isinstance(device_map, str) else dict(device_map)
        device_options = {"device_map": plain_map, "dtype": DTYPES[dtype]}
    if name in EMBEDDED:
        if revision is not None:
            raise HeadlabError(
                f"{name} is embedded and has one revision; leave the revision out",
                code="model.revision_fixed",
            )
        read_checkpoint = partial(read_embedded, name)
    else:
        read_checkpoint = partial(read_folder, *_folder_of(name, revision), name, **device_options)
    try:
        checkpoint = read_checkpoint()
        moved_to = None if device_options else target_device
        torch.nn.Module.to(checkpoint.module, device=moved_to, dtype=DTYPES[dtype])
    except (RuntimeError, MemoryError, OSError, HeadlabError) as error:
        if not is_out_of_memory(error) and not is_out_of_memory(error.__cause__):
            raise
        devices = "the devices of its device_map" if device_options else target_device
        raise HeadlabError(
            f"{name} does not fit in the memory of {devices}; use a smaller model, another "
            "device, or dtype bfloat16",
            code="memory.model_too_large",
        ) from error
    checkpoint.module.eval().requires_grad_(False)
    if checkpoint.note and name not in EMBEDDED:
        warnings.warn(f"{name}: {checkpoint.note}", stacklevel=3)
    return checkpoint


def check_map(device_map: DeviceMap, name: str, device: str | None) -> None:
    """Raise HeadlabError for a device map that cannot be used for a model of this name.

    It is checked as far as the name tells.
    """
    require_type(
        "device_map", device_map, (str, Mapping), "the name of a strategy, or {module path: device}"
    )
    if device is not None:
        raise HeadlabError(
            "device puts a model on one device, device_map spreads it over several; give one of "
            "them",
            code="device_map.and_device",
        )
    if isinstance(device_map, str) and device_map not in STRATEGIES:
        raise HeadlabError(
            f"unknown device_map {device_map!r}; use one of {', '.join(STRATEGIES)}, or {{module "
            f"path: device}}",
            code="device_map.unknown",
        )
    if name in EMBEDDED or is_delta(Path(name)):
        raise HeadlabError(
            f"{name} is assembled in memory, and fits one device; leave device_map out",
            code="device_map.embedded",
        )
    if isinstance(device_map, str):
        return
    for device_name in device_map.values():
        require_type(
            "a device of device_map",
            device_name,
            (str, int),
            'its name, such as "cuda:1", or "disk"',
        )
        if device_name != "disk":
            pick_device(device_name)


def pick_device(device: str | int | None) -> torch.device:
    """The requested device, by default a GPU if there is one.

    Raises HeadlabError if it cannot be used.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch_device = torch.device(device)
        torch.empty(1, device=torch_device).item()
    except (RuntimeError, AssertionError, ValueError) as error:
        raise HeadlabError(
            f"device {device!r} cannot be used here ({first_line(error)}); use cpu, or leave the "
            "device out",
            code="device.unusable",
        ) from error
    return torch_device


def _folder_of(name: str, revision: str | None) -> tuple[Path, str]:
    if is_folder(name):
        return Path(name), FOLDER_REVISION
    try:
        folder = hub_folder(name, revision)
    except HeadlabError as error:
        if "/" in name:
            raise
        raise HeadlabError(
            f"{error}; embedded here: {', '.join(EMBEDDED)}", code=error.code
        ) from error
    return folder, folder.name


def read_folder(
    folder: Path, revision: str, name: str, **device_options: Unpack[DeviceOptions]
) -> Checkpoint:
    """Load a Hugging Face folder with the class its config names.

    It may also be a folder of changes to the embedded base.

    Args:
        folder: Of the model.
        revision: As results record it.
        name: The model, in messages.
        device_options: `device_map` and `dtype`, of transformers, for a model on several devices.

    Raises:
        HeadlabError: It lacks safetensors weights, any weight of the model, a readable config, a
            known class or a tokenizer, or holds an adapter.
    """
    require_safetensors(folder, name)
    if (folder / ADAPTER).exists():
        raise HeadlabError(
            f"{name} holds an adapter, not a whole model; merge it into its base and save that",
            code="model.is_adapter",
        )
    is_changes_only = is_delta(folder)
    with errors_as_headlab_errors(partial(_unreadable, name)):
        require_readable_names(folder, name)
        config = _config(folder, name)
        tokenizer = None
        problem = None
        try:
            tokenizer = _tokenizer(base_of(folder) if is_changes_only else folder, name)
        except HeadlabError as error:  # what is wrong with the weights goes first
            problem = error
        model_class = _class_of(config, name)
        check_named_tokens(model_class, config, name)
        _undo_local_settings(config, tokenizer, folder)
        with building_alone(), growing_no_larger(_stored_bytes(folder), name):
            module, note = _load_complete(model_class, config, folder, name, device_options)
        if tokenizer is not None and (folder / TRAINING_FILE).is_file():
            state_earlier_training(tokenizer, config, labels_words=classifies_words(module))
    if problem is not None:
        raise problem
    assert tokenizer is not None
    identity = fingerprint_delta(folder) if is_changes_only else identity_of(folder).fingerprint
    named_folder = folder.absolute() if revision == FOLDER_REVISION else None
    return Checkpoint(str(name), revision, identity, module, tokenizer, note, named_folder)


def read_config(folder: Path) -> PretrainedConfig:
    """A folder's configuration, without its weights.

    Args:
        folder: Of a model.

    Raises:
        HeadlabError: It cannot be read.
    """
    name = str(folder)
    with errors_as_headlab_errors(partial(_unreadable, name)):
        return _config(folder, name)


def _stored_bytes(folder: Path) -> int:
    """The size of a folder's weights; with those of the embedded base, where it changes that."""
    paths = list(folder.glob(SAFETENSORS))
    if is_delta(folder):
        paths += base_of(folder).glob(SAFETENSORS)
    return sum(path.stat().st_size for path in paths if path.is_file())


def expected_bytes(name: str) -> int | None:
    """Memory that a model's weights are going to take in float32, by the headers of its files.

    Args:
        name: An embedded name, a folder or a hub id whose files are on this machine.

    Returns:
        Bytes; None where the files are not here or cannot be read, which loading the model explains,
        and for packed weights, whose numbers the headers do not count.
    """
    if name in EMBEDDED:
        return FLOAT_BYTES * EMBEDDED[name].parameters
    folder = Path(name) if is_folder(name) else fetched_folder(name)
    if folder is None:
        return None
    try:
        with errors_as_headlab_errors(partial(_unreadable, name)):
            config = _config(folder, name)
            shapes = _shapes_of(folder, config)
    except HeadlabError:
        return None
    if getattr(config, "quantization_config", None):
        return None
    return FLOAT_BYTES * sum(math.prod(shape) for shape in shapes.values())


def _config(folder: Path, name: str) -> PretrainedConfig:
    """A folder's configuration.

    Args:
        folder: of the model.
        name: the model, in messages.

    Raises:
        HeadlabError: no model has numbers like it, or what it says of quantised weights cannot be
            read.
        what transformers raises for other bad files.
    """
    require_possible_counts(folder, name)
    make_known()
    make_known_folder(folder)
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception:  # transformers raises anything
        settings = _stated_quantisation(folder)
        if settings is not None and not isinstance(settings, dict):
            require_described(settings, name)
        raise
    return config


def _stated_quantisation(folder: Path) -> object:
    """The `quantization_config` of a folder's config.json as it stands there.

    None if there is none.
    """
    try:
        config: object = read_json(folder / "config.json")
    except HeadlabError:  # what transformers says of such a file is said
        return None
    if not isinstance(config, dict):
        return None
    return config.get("quantization_config")


def _unreadable(name: str, error: BaseException) -> HeadlabError:
    reason = first_line(error)
    if isinstance(error, ZeroDivisionError):
        reason = "a number in its configuration, such as that of its heads, is 0"
    return HeadlabError(
        f"{name} cannot be read as a Hugging Face model: {reason}", code="model.unreadable"
    )


def _undo_local_settings(
    config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None, folder: Path
) -> None:
    """Undo settings of a configuration that depend on how it was saved, and change no output.

    A padding token that only the tokenizer or the settings of generation name, if the model has it;
    an attention kernel that may not be installed here; feed-forward layers computed in pieces,
    which needs sentences of a suitable length.
    """
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        if getattr(part, "pad_token_id", None) is None and tokenizer is not None:
            padding = tokenizer.pad_token_id
            if not is_known_token(padding, config):
                padding = generation_padding(folder, config)
            part.pad_token_id = padding
        if part._attn_implementation not in KERNELS:
            part._attn_implementation = None
        if getattr(part, "chunk_size_feed_forward", 0):
            part.chunk_size_feed_forward = 0


def _require_covered(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    device_map: Mapping[str, str | int],
    name: str,
) -> None:
    """Raise HeadlabError unless the paths of a device map cover a model.

    Every path must be a module of the model, and every weight be in just one of them.
    """
    with torch.device("meta"):
        module = kind(config)
    known_paths = {path for path, _ in module.named_modules()} | {*module.state_dict()}
    problems = [
        f"names {path}, which the model does not have"
        for path in device_map
        if path not in known_paths
    ]
    for weight in module.state_dict():
        covering_paths = [
            path for path in device_map if not path or f"{weight}.".startswith(f"{path}.")
        ]
        if len(covering_paths) != 1:
            problems.append(f"has {weight} under {len(covering_paths)} of its paths")
    if problems:
        raise HeadlabError(
            f"the device_map for {name} {problems[0]}; have every weight under one path, or use "
            "auto",
            code="device_map.not_covering",
        )


class LoadingOptions(TypedDict, total=False):
    """Options of `from_pretrained`, as transformers names them, with which headlab loads a model.

    Attributes:
        config: The model's configuration.
        output_loading_info: Whether a report on the weights is returned beside the model.
        ignore_mismatched_sizes: Whether weights of another shape are reported, not refused.
        use_safetensors: Whether the folder's weights are safetensors.
        state_dict: The weights by name, where they do not come from the folder.
        key_mapping: Renamed prefixes of stored names, as regular expressions.
    """

    config: PretrainedConfig
    output_loading_info: bool
    ignore_mismatched_sizes: bool
    use_safetensors: bool
    state_dict: dict[str, torch.Tensor]
    key_mapping: dict[str, str] | None


def _spread_out(
    kind: type[PreTrainedModel],
    folder: Path | None,
    options: LoadingOptions,
    devices: DeviceOptions,
) -> object:
    """`from_pretrained` with a folder for weights that no device takes.

    The folder is there as long as the model.
    """
    with ExitStack() as undo:
        offload_folder = undo.enter_context(
            TemporaryDirectory(prefix="headlab-", ignore_cleanup_errors=True)
        )
        model_and_info: object = kind.from_pretrained(
            folder, offload_folder=offload_folder, **options, **devices
        )
        module, _ = with_loading_info(model_and_info)
        weakref.finalize(module, undo.pop_all().close)
    return model_and_info


def _load_complete(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    folder: Path,
    name: str,
    spread: DeviceOptions,
) -> tuple[PreTrainedModel, str]:
    """The model with all its weights, and a note on those of its files that it does without.

    Args:
        kind: the model's class.
        config: its configuration.
        folder: of its files.
        name: the model, in messages.
        spread: `device_map` and `dtype`, of transformers, for a model on several devices.

    Raises:
        HeadlabError: weights are missing, which transformers would make up, or the class takes only
            some of them.
    """
    device_map = spread.get("device_map")
    if isinstance(device_map, dict):
        _require_covered(kind, config, device_map, name)
    is_packed = quantisation_of(config, name) is not None  # reading the weights forgets it
    module, report = _load_module(kind, config, folder, name, spread, {})
    if not is_packed:
        _require_numbers(module, folder, config, name)
    if report.is_clean and not getattr(config, "pruned_heads", None):
        return module, ""
    shapes = _shapes_of(folder, config)
    if shows_fit_in_headers(config, name):
        fit = fit_weights(kind, config, shapes, name)
    else:
        fit = judge_report(module, report, shapes, name)
    if fit.renames:
        del module  # before the second one takes memory
        module, _ = _load_module(kind, config, folder, name, spread, fit.renames)
        forget_renames(module, fit.renames)
    if is_delta(folder):  # its base has parts that not every class takes
        return module, ""
    return module, fit.note


def _require_numbers(
    module: PreTrainedModel, folder: Path, config: PretrainedConfig, name: str
) -> None:
    """Raise HeadlabError for weights that are stored as integers.

    Transformers would take these for the numbers.

    Args:
        module: as it was loaded.
        folder: of its files.
        config: its configuration, which says nothing of weights that are packed into integers.
        name: the model, in messages.
    """
    if is_delta(folder):
        return
    prefix = f"{module.base_model_prefix}."
    weights = {key for key, weight in module.named_parameters() if weight.is_floating_point()}
    weights |= {key.removeprefix(prefix) for key in weights}
    integers = integer_weights(folder, config)
    wrong = sorted(key for key in integers if key in weights or key.removeprefix(prefix) in weights)
    if wrong:
        raise HeadlabError(
            f"{name} has {wrong[0]} as {integers[wrong[0]]}, which holds no weights, and its "
            "config.json names no way to unpack them; use a checkpoint of floating-point numbers",
            code="model.weights_of_integers",
        )


def _shapes_of(folder: Path, config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """{name: shape} of every weight of a folder.

    For changes to the embedded base, the base's weights are included.
    """
    if not is_delta(folder):
        return folder_shapes(folder, config)
    base = stored_shapes(base_of(folder), [SINGLE])
    return named_as_in_classifier(base) | stored_shapes(folder, [DELTA_FILE])


def _load_module(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    folder: Path,
    name: str,
    spread: DeviceOptions,
    renames: Mapping[str, str],
) -> tuple[PreTrainedModel, LoadReport]:
    """The model as transformers loads it, and what it reports.

    Arguments as in `_load_complete` and `WeightFit`.
    """
    options: LoadingOptions = {
        "config": config,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,
    }
    if is_delta(folder):
        options["state_dict"] = weights_of(folder)
    else:
        options["use_safetensors"] = True
    if renames:
        options["key_mapping"] = key_mapping(renames)
    source = None if is_delta(folder) else folder
    quantisation = quantisation_of(config, name)
    devices: DeviceOptions = {**dequantising_options(config, name), **spread}
    with quantised_reading(quantisation, name):
        try:
            if spread:
                model_and_info = _spread_out(kind, source, options, devices)
            else:
                model_and_info = kind.from_pretrained(source, **options, **devices)
            module, loading_info = with_loading_info(model_and_info)
        # A shrunk model whose configuration lists heads that it does not have.
        except HeadlabError as error:
            raise _written_wrongly(name, error) from error
        if quantisation is not None:
            module = dequantise_module(module)
    return module, LoadReport.from_loading_info(loading_info)


def _written_wrongly(name: str, error: HeadlabError) -> HeadlabError:
    return HeadlabError(
        f"{name} was written incorrectly: {error}; shrink the model again", code=error.code
    )


def _class_of(config: PretrainedConfig, name: str) -> type[PreTrainedModel]:
    """The class that a configuration names. Raises HeadlabError if it is none of transformers'."""
    architectures = config.architectures
    class_name = "none"
    if isinstance(architectures, list) and architectures:
        class_name = str(architectures[0])
    model_class = (
        OWN_CLASSES.get(class_name)
        or class_named(config, class_name)
        or getattr(transformers, class_name, None)
    )
    if not (isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)):
        raise HeadlabError(
            f"{name} names the class {class_name}, which transformers {transformers.__version__} "
            "does not have; use a model whose class it has",
            code="model.class_unknown",
        )
    _require_its_configuration(model_class, config, name)
    return model_class


# Of every configuration, and no part of what a model computes.
KEYS_OF_NO_CLASS = ("model_type", "transformers_version", "architectures", "_name_or_path")


def _require_its_configuration(
    kind: type[PreTrainedModel], config: PretrainedConfig, name: str
) -> None:
    """Raise HeadlabError for a class that would compute with another family's configuration.

    So it is if a config.json names a model type that is not its class's: what the type does not
    know of is then left out, or has another default.  What is left out does no harm if the class
    does not read it: transformers itself has classes that serve several model types.

    Args:
        kind: the class that the configuration names.
        config: the configuration.
        name: the model, in messages.
    """
    config_class = kind.config_class
    if not isinstance(config_class, type) or isinstance(config, config_class):
        return
    values = config.to_dict()
    values_of_class = config_class.from_dict(values).to_dict()
    keys_of_class = [key for key in values_of_class if key not in KEYS_OF_NO_CLASS]
    differing_keys = [
        key for key in keys_of_class if key in values and values[key] != values_of_class[key]
    ]
    absent_keys = [key for key in keys_of_class if key not in values]
    if not differing_keys and absent_keys and not can_be_built(kind, config):
        differing_keys = absent_keys
    if differing_keys:
        raise HeadlabError(
            f"{name} names the class {kind.__name__}, but the model type {config.model_type}, "
            f"whose configuration has another {differing_keys[0]}; put the model type "
            f"{config_class.model_type} into its config.json, or the class that the model type "
            "belongs to",
            code="model.type_of_another_class",
        )


def _tokenizer(folder: Path, name: str) -> PreTrainedTokenizerBase:
    """A folder's tokenizer.

    Raises HeadlabError if it has none that can be read.

    Args:
        name: The model, in messages.
    """
    with errors_as_headlab_errors(partial(_no_tokenizer, name)):
        with building_alone():
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise TypeError(f"its tokenizer_class is {type(tokenizer).__name__}, which is none")
        if not tokenizer.model_input_names:
            raise ValueError("model_input_names in its tokenizer_config.json names no inputs")
        # if its files are missing, transformers creates a tokenizer with an empty vocabulary
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise HeadlabError(
                f"{name} lacks the tokenizer's vocabulary; save its tokenizer into its folder",
                code="tokenizer.vocabulary_missing",
            )
        return tokenizer


def _no_tokenizer(name: str, error: BaseException) -> HeadlabError:
    if isinstance(error, ImportError):
        return HeadlabError(
            f"the tokenizer of {name} needs a package that is not installed "
            f"({first_line(error)}); translation models take pip install 'headlab[translation]'",
            code="tokenizer.package_missing",
        )
    return HeadlabError(
        f"{name} has no tokenizer that can be read ({first_line(error)}); save one into its folder",
        code="tokenizer.unreadable",
    )


# What a model's files tell before its weights are read.


class Fact(NamedTuple):
    """One check of a model.

    Attributes:
        ok: None if only loading it can tell.
        words: A sentence.
        classes: Of the check of its configuration, the names of a classifier's classes.
    """

    what: str
    ok: bool | None
    words: str
    classes: tuple[str, ...] = ()


def examine_model(name: str, task: Task | None = None) -> list[Fact]:
    """Whether a model can be used, as far as its files tell.

    Of a hub model, all but the weights are fetched. The list ends with the first check without
    which the others say nothing.

    Args:
        name: Of the model.
        task: One whose labels its classes should be; None for none.
    """
    if name in EMBEDDED:
        return _embedded_facts(name, task)
    try:
        folder, sizes, location = _folder_and_sizes(name)
    except HeadlabError as error:
        return [Fact("Found", False, as_sentence(error))]
    facts = [Fact("Found", True, location)]
    try:
        with errors_as_headlab_errors(partial(_unreadable, name)):
            require_readable_names(folder, name)
            config = _config(folder, name)
            class_names = _class_names(config)
    except HeadlabError as error:
        facts.append(Fact("Configuration", False, as_sentence(error)))
        problem = _unreadable_weights(folder, sizes, name)
        if problem is not None:
            facts.append(problem)
        return facts
    sentence = f"config.json names model type {config.model_type}."
    facts.append(Fact("Configuration", True, sentence, class_names))
    weights = _weights_fact(folder, sizes, config, name)
    try:
        model_class = _class_of(config, name)
    except HeadlabError as error:
        return [*facts, weights, Fact("Architecture", False, as_sentence(error))]
    try:
        with errors_as_headlab_errors(partial(_unreadable, name)):
            check_named_tokens(model_class, config, name)
    except HeadlabError as error:
        return [*facts, weights, Fact("Special tokens", False, as_sentence(error))]
    if weights.ok:
        weights = _weights_fit_fact(weights, model_class, config, folder, name)
    facts += [
        weights,
        _architecture_fact(model_class.__name__, str(config.model_type)),
        _heads_fact(config),
        _tokenizer_fact(folder, name),
    ]
    return [*facts, *_task_facts(model_class.__name__, config, task)]


def _task_facts(class_name: str, config: PretrainedConfig, task: Task | None) -> list[Fact]:
    """Whether a model can do a task; nothing without a task, or of one without labels."""
    if task is not None and task.likelihood:
        return [_language_model_fact(class_name, config, task)]
    if task is not None and task.labels:
        return [_labels_fact(class_name, config, task)]
    return []


def _embedded_facts(name: str, task: Task | None) -> list[Fact]:
    """Whether an embedded model is there, and can do a task.

    The first fact has the names of its classes if it is a classifier.
    """
    class_name = "LlamaForCausalLM"
    classes: tuple[str, ...] = ()
    if EMBEDDED[name].adapter:
        try:
            labels = read_labels(adapter_folder(name))
        except HeadlabError as error:
            return [Fact("Found", False, as_sentence(error))]
        classes = labels.labels
        class_name = (
            "BertForTokenClassification" if labels.words else "BertForSequenceClassification"
        )
    found = Fact("Found", True, f"{name} comes with headlab.", classes)
    config = PretrainedConfig(id2label=dict(enumerate(classes)))
    return [found, *_task_facts(class_name, config, task)]


def _class_names(config: PretrainedConfig) -> tuple[str, ...]:
    """The names of a classifier's classes.

    Another model has none: the names in its configuration mean nothing.
    """
    if not any(str(name).endswith("Classification") for name in config.architectures or ()):
        return ()
    return tuple(str(label) for _, label in sorted((config.id2label or {}).items()))


def _folder_and_sizes(name: str) -> tuple[Path, Mapping[str, int], str]:
    """A model's folder, the bytes of its files, and where it is.

    Raises HeadlabError if it is nowhere.
    """
    is_local = is_folder(name)
    folder = Path(name) if is_local else hub_folder(name, None, LIGHT)
    try:
        sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    except OSError as error:
        raise HeadlabError(
            f"the folder {name} cannot be read ({error.strerror}); check its permissions",
            code="model.folder_unreadable",
        ) from error
    if is_local:
        return folder, sizes, f"A folder on the worker's machine, with {len(sizes)} files."
    location = f"On the hub, at revision {folder.name[:7]}"
    has_weights = any(file.endswith(".safetensors") for file in sizes)
    if has_weights and not _missing_shards(folder, sizes):
        return folder, sizes, f"{location}; fetched already."
    return folder, hub_sizes(name), f"{location}."


def _missing_shards(folder: Path, sizes: Mapping[str, int]) -> list[str]:
    """Files of weights that the folder's index names and the model does not have."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        indexed_files = read_json(index)["weight_map"].values()
    # Reading the weights says what is wrong with it.
    except (HeadlabError, LookupError, TypeError, AttributeError):
        return []
    return sorted({str(file) for file in indexed_files} - set(sizes))


def _weights_fact(
    folder: Path, sizes: Mapping[str, int], config: PretrainedConfig, name: str
) -> Fact:
    """Whether the weights are safetensors, and how large they are.

    Args:
        folder: of the files that are here.
        sizes: {name: bytes} of all the model's files.
        config: its configuration.
        name: the model, in messages.
    """
    problem = _unreadable_weights(folder, sizes, name)
    if problem is not None:
        return problem
    try:
        quantisation = quantisation_of(config, name)
    except HeadlabError as error:
        return Fact("Weights", False, as_sentence(error))
    try:
        files = [DELTA_FILE]
        if not is_delta(folder):
            files = weight_files(folder, sizes, named_weight_file(config))
        if not files:
            unread_file = next(file for file in sizes if _is_safetensors(file))
            sentence = f"{unread_file} is not read; name the file of weights model.safetensors."
            return Fact("Weights", False, sentence)
        size = f"{sum(sizes[file] for file in files) / 1e6:,.1f} MB"
        if not _are_here(folder, files):
            return Fact("Weights", True, f"safetensors, {size} to fetch.")
        if quantisation is not None and quantisation.known:
            sentence = (
                f"safetensors quantised with {quantisation.title}, {size}; loading dequantises "
                "them."
            )
            return Fact("Weights", True, sentence)
        with errors_as_headlab_errors(_torn_weights):
            count = sum(map(math.prod, stored_shapes(folder, files).values()))
    except HeadlabError as error:
        return Fact("Weights", False, f"{name}: {as_sentence(error)}")
    counted = "numbers that change the embedded base" if is_delta(folder) else "parameters"
    return Fact("Weights", True, f"safetensors, {count / 1e6:,.1f} million {counted}, {size}.")


def _torn_weights(error: BaseException) -> HeadlabError:
    return HeadlabError(
        f"the safetensors cannot be read ({first_line(error)}); copy the model again",
        code="model.weights_torn",
    )


def _unreadable_weights(folder: Path, sizes: Mapping[str, int], name: str) -> Fact | None:
    """What is wrong with the files of weights, by their names; None if nothing is.

    Arguments as in `_weights_fact`.
    """
    if ADAPTER in sizes:
        return Fact(
            "Weights",
            False,
            "The folder holds an adapter; merge it into its base and save the whole model.",
        )
    if not sizes:
        return Fact("Weights", None, "The hub could not be asked which weights it has.")
    if not any(map(_is_safetensors, sizes)):
        return Fact(
            "Weights", False, as_sentence(no_safetensors([*sizes, *_nested_files(folder)], name))
        )
    absent = _missing_shards(folder, sizes)
    if absent:
        sentence = (
            f"{absent[0]} is missing, which the index of weights names; copy the model again."
        )
        return Fact("Weights", False, sentence)
    return None


def _nested_files(folder: Path) -> list[str]:
    """Paths of the files in the folders of a model's folder."""
    return [path.relative_to(folder).as_posix() for path in folder.glob("*/*")]


def _is_safetensors(file: str) -> bool:
    return file.endswith(".safetensors") and "/" not in file


def _are_here(folder: Path, files: Iterable[str]) -> bool:
    return all((folder / file).is_file() for file in files)


def _weights_fit_fact(
    weights: Fact, kind: type[PreTrainedModel], config: PretrainedConfig, folder: Path, name: str
) -> Fact:
    """The fact about the weights, with whether the class takes them all.

    That is told by the headers of their files.

    Args:
        weights: the fact so far.
        kind: the model's class.
        config: its configuration.
        folder: of the files that are here.
        name: a folder, or the hub id under which headers are read where the files are not here.
    """
    try:
        with errors_as_headlab_errors(partial(_unreadable, name)):
            dequantising_options(config, name)  # raises where they cannot be read
            if not shows_fit_in_headers(config, name):
                words = f"{weights.words} Loading it compares them with the class."
                return weights._replace(words=words)
            shapes: Mapping[str, tuple[int, ...]] | None
            if is_delta(folder) or _has_weights(folder, config):
                shapes = _shapes_of(folder, config)
            else:
                shapes = hub_shapes(name)
            if shapes is None:
                words = f"{weights.words} Once fetched, they are compared with the class."
                return weights._replace(words=words)
            stored_bytes = MAX_BYTES_A_NUMBER * sum(map(math.prod, shapes.values()))
            with growing_no_larger(stored_bytes, name):
                fit = fit_weights(kind, config, shapes, name)
    except HeadlabError as error:
        return Fact("Weights", False, as_sentence(error))
    if not fit.note or is_delta(folder):
        return weights
    return weights._replace(words=f"{weights.words} {_capitalise(fit.note)}.")


def _has_weights(folder: Path, config: PretrainedConfig) -> bool:
    """Whether a folder has all of its files of weights."""
    file_names = [path.name for path in folder.iterdir()]
    files = weight_files(folder, file_names, named_weight_file(config))
    return bool(files) and _are_here(folder, files)


def _capitalise(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _architecture_fact(class_name: str, model_type: str) -> Fact:
    tried_family = tried_families()["families"].get(model_type.removeprefix(SHRUNK))
    if tried_family is None:
        sentence = (
            f"{class_name}: model type {model_type} has not been tried yet; loading it tries whether "
            "its heads can be gated."
        )
        return Fact("Architecture", None, sentence)
    if not tried_family["gated"]:
        return Fact(
            "Architecture", False, f"Model type {model_type} was tried: {tried_family['why']}."
        )
    return Fact(
        "Architecture", True, f"{class_name}: the heads of model type {model_type} can be gated."
    )


def _heads_fact(config: PretrainedConfig) -> Fact:
    """How many layers and heads there are, if the configuration tells it.

    It tells so for a model of one stack whose layers all have equally many heads.
    """
    text_config = config.get_text_config()
    layer_count = getattr(text_config, "num_hidden_layers", None)
    head_count = getattr(text_config, "num_attention_heads", None)
    is_shrunk = str(config.model_type).startswith(SHRUNK)
    has_two_stacks = getattr(config, "is_encoder_decoder", False)
    # With layers of several kinds, some may have no attention.
    is_hybrid = len(set(getattr(text_config, "layer_types", None) or ["attention"])) > 1
    is_uneven = is_shrunk or has_two_stacks or is_hybrid
    if is_uneven or not isinstance(layer_count, int) or not isinstance(head_count, int):
        sentence = (
            "The configuration does not tell how many there are; loading the model finds them."
        )
        return Fact("Heads", None, sentence)
    sentence = f"{layer_count} layers × {head_count} heads = {layer_count * head_count}, by its configuration."
    key_value_heads = getattr(text_config, "num_key_value_heads", None)
    if isinstance(key_value_heads, int) and 0 < key_value_heads < head_count:
        sentence += (
            f" Queries are grouped: heads 0 to {head_count // key_value_heads - 1} of a layer share keys and "
            "values, and so on."
        )
    return Fact("Heads", True, sentence)


def _tokenizer_fact(folder: Path, name: str) -> Fact:
    try:
        tokenizer = _tokenizer(base_of(folder) if is_delta(folder) else folder, name)
    except HeadlabError as error:
        return Fact("Tokenizer", False, as_sentence(error))
    return Fact("Tokenizer", True, f"{type(tokenizer).__name__} with {len(tokenizer):,} tokens.")


def _language_model_fact(class_name: str, config: PretrainedConfig, task: Task) -> Fact:
    """Whether a model is a language model, as far as its class tells."""
    is_masked = class_name.endswith("ForMaskedLM")
    if config.is_encoder_decoder:
        generates = class_name.endswith(
            ("ForConditionalGeneration", "MTModel", "EncoderDecoderModel")
        )
        continues_texts = generates and task.likelihood == "choices"
    else:
        continues_texts = class_name.endswith(("ForCausalLM", "LMHeadModel"))
    if continues_texts or (is_masked and task.likelihood == "tokens"):
        return Fact(
            "Answers", True, f"{class_name} is a language model, which task {task.name} needs."
        )
    problem = "does not predict the next token of a text"
    if is_masked:
        problem = "predicts masked tokens, and not the next one"
    sentence = (
        f"{class_name} {problem}, so it cannot do task {task.name}; use one like smollm2-135m."
    )
    return Fact("Answers", False, sentence)


def _labels_fact(class_name: str, config: PretrainedConfig, task: Task) -> Fact:
    if not class_name.endswith("Classification"):
        sentence = (
            f"{class_name} is no classifier, so it answers no task with labels such as {task.name}; use "
            "a fine-tuned one."
        )
        return Fact("Labels", False, sentence)
    try:
        asks_for_words = bool(task.examples(task.languages[0], "dev", 1)[0].words)
    except HeadlabError:
        # The task's data are not on this machine. Reading its examples later says so, so no
        # mismatch is told here.
        asks_for_words = class_name.endswith("ForTokenClassification")
    if asks_for_words != class_name.endswith("ForTokenClassification"):
        texts_or_words = "words" if asks_for_words else "texts"
        return Fact(
            "Labels",
            False,
            f"{class_name} does not label {texts_or_words}, as task {task.name} asks; use a model that "
            "does.",
        )
    class_names = [str(label) for _, label in sorted((config.id2label or {}).items())]
    try:
        return Fact(
            "Labels", *match_before_examples(task.name, task.labels, class_names, task.label_map)
        )
    except HeadlabError as error:
        return Fact("Labels", False, as_sentence(error))
