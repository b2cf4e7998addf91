"""Which of a checkpoint's weights its class takes.

Names and shapes in the headers of its files tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol, cast

import torch
from safetensors import safe_open
from transformers import PretrainedConfig, PreTrainedModel

from headlab.core import HeadlabError, read_json, remember_former_fingerprints
from headlab.models.checkpoint import LoadingInfo, building_alone
from headlab.models.files import FolderIdentity, identify_folder
from headlab.models.quantised import quantised_clause

# Names and shapes of stored weights, from the headers of the files that transformers reads.

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
NAMED_FILE = "transformers_weights"  # transformers' key in config.json for a file of another name
Shapes = Mapping[str, tuple[int, ...]]


def named_weight_file(config: PretrainedConfig) -> str | None:
    """The file of weights that a configuration names; None if it names none."""
    file_name: object = getattr(config, NAMED_FILE, None)
    if isinstance(file_name, str):
        return file_name
    return None


def weight_files(
    folder: Path, file_names: Collection[str], named_file: str | None = None
) -> list[str]:
    """The safetensors files that transformers reads as a model's weights; none if it finds none.

    Args:
        folder: where the index of weights is, if there is one.
        file_names: the model's files, of which some may not be fetched yet.
        named_file: the file of weights that the model's configuration names, if it names one.

    Raises:
        HeadlabError: the index cannot be read.
    """
    candidates = [SINGLE, INDEX] if named_file is None else [named_file]
    weight_file = next((name for name in candidates if name in file_names), None)
    if weight_file is None:
        return []
    if not weight_file.endswith(".index.json"):
        return [weight_file]
    if not (folder / weight_file).is_file():
        return sorted(name for name in file_names if _is_weight_file(name))
    return _shards(folder / weight_file)


def _is_weight_file(name: str) -> bool:
    return name.endswith(".safetensors") and PurePath(name).name == name


def _shards(index: Path) -> list[str]:
    try:
        return sorted({str(file) for file in read_json(index)["weight_map"].values()})
    except (LookupError, TypeError, AttributeError) as error:
        raise HeadlabError(
            f"{index.name} does not say which file holds which weight; copy the model again",
            code="model.index_unreadable",
        ) from error


def identity_of(folder: Path) -> FolderIdentity:
    """What a folder that holds a whole model is known by; its earlier fingerprints are remembered.

    Raises:
        HeadlabError: the index of weights, or a file that counts, cannot be read.
    """
    file_names = [path.name for path in folder.iterdir()]
    identity = identify_folder(folder, weight_files(folder, file_names, _stated_file(folder)))
    remember_former_fingerprints(identity.fingerprint, identity.former)
    return identity


def _stated_file(folder: Path) -> str | None:
    """The file of weights that a folder's config.json names; None if it names none."""
    config: object = read_json(folder / "config.json")
    file_name = config.get(NAMED_FILE) if isinstance(config, dict) else None
    if isinstance(file_name, str):
        return file_name
    return None


def stored_shapes(folder: Path, files: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """{name: shape} of every weight in some safetensors files, read from their headers.

    Raises:
        OSError, SafetensorError: a file is missing or torn.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file_name in files:
        with safe_open(folder / file_name, "pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                shapes[key] = tuple(file.get_slice(key).get_shape())
    return shapes


def folder_shapes(folder: Path, config: PretrainedConfig) -> dict[str, tuple[int, ...]]:
    """{name: shape} of every weight of a local folder that holds a whole model.

    Raises:
        HeadlabError: the index of weights cannot be read.
        OSError, SafetensorError: a file is missing or torn.
    """
    file_names = [path.name for path in folder.iterdir()]
    return stored_shapes(folder, weight_files(folder, file_names, named_weight_file(config)))


# As safetensors names the types of floating-point numbers.
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


def integer_weights(folder: Path, config: PretrainedConfig) -> dict[str, str]:
    """{name: type} of every weight that is not of floating-point numbers.

    The folder is a local one, as in `folder_shapes`.
    """
    types: dict[str, str] = {}
    file_names = [path.name for path in folder.iterdir()]
    for file_name in weight_files(folder, file_names, named_weight_file(config)):
        with safe_open(folder / file_name, "pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                stored_type = file.get_slice(key).get_dtype()
                if stored_type not in FLOATS:
                    types[key] = stored_type
    return types


# What transformers reports after loading, and the same before it: a class built without memory for
# its weights.


class LoadReport(NamedTuple):
    """Differences between a file's weights and a class's.

    Attributes:
        missing: Weights of the class that the file lacks.
        mismatched: {name: (shape in the file, shape in the class)}.
        unexpected: Weights of the file that the class does not take.
    """

    missing: frozenset[str]
    mismatched: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    unexpected: frozenset[str]

    @classmethod
    def from_loading_info(cls, info: LoadingInfo) -> LoadReport:
        """The report in transformers' `output_loading_info`."""
        mismatches = {}
        for name, stored_shape, class_shape in info["mismatched_keys"]:
            mismatches[name] = (tuple(stored_shape), tuple(class_shape))
        return cls(frozenset(info["missing_keys"]), mismatches, frozenset(info["unexpected_keys"]))

    @property
    def absent(self) -> list[str]:
        """Weights that transformers would make up: missing ones and those of another shape."""
        return sorted({*self.missing, *self.mismatched})

    @property
    def is_clean(self) -> bool:
        """Whether the file has just the class's weights."""
        return not self.absent and not self.unexpected


def load_without_memory(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    shapes: Shapes,
    renames: Mapping[str, str],
) -> tuple[PreTrainedModel, LoadReport]:
    """What loading weights of these names and shapes would report.

    Neither reads nor makes a number.

    Args:
        kind: the model's class.
        config: its configuration.
        shapes: {name: shape} of the stored weights.
        renames: as in `WeightFit`.

    Raises:
        what transformers raises for a configuration that it cannot build.
    """
    numbers = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    with building_alone():
        model_and_info: object = kind.from_pretrained(
            None,
            config=config,
            state_dict=numbers,
            device_map={"": "meta"},
            key_mapping=key_mapping(renames),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    module, loading_info = with_loading_info(model_and_info)
    return module, LoadReport.from_loading_info(loading_info)


def with_loading_info(model_and_info: object) -> tuple[PreTrainedModel, LoadingInfo]:
    """What `from_pretrained` gives with `output_loading_info`, which its type does not tell."""
    return cast(tuple[PreTrainedModel, LoadingInfo], model_and_info)


# Prefixes that training leaves in the names of weights.

WRAPPERS = {
    "_orig_mod": "torch.compile",
    "module": "data-parallel training",
    "_fsdp_wrapped_module": "sharded training",
    "_fpw_module": "sharded training",
    "_checkpoint_wrapped_module": "activation checkpointing",
}
MAX_OUTER_PARTS = 3  # components of a prefix that a program may put before the name of every weight


def key_mapping(renames: Mapping[str, str]) -> dict[str, str] | None:
    """Renamed prefixes as `from_pretrained` takes them; None if there are none."""
    longest_first = sorted(renames, key=len, reverse=True)
    return {f"^{re.escape(prefix)}": renames[prefix] for prefix in longest_first} or None


class _Conversion(Protocol):
    """A renaming of weights that transformers remembers of loading a model."""

    _original_source_patterns: Iterable[str]


def forget_renames(module: PreTrainedModel, renames: Mapping[str, str]) -> None:
    """Let `save_pretrained` write the class's own names.

    Transformers would put the prefixes back.
    """
    patterns = set(key_mapping(renames) or ())
    conversions: Sequence[_Conversion] = getattr(module, "_weight_conversions", None) or []
    class_conversions = [
        conversion
        for conversion in conversions
        if not patterns & {*conversion._original_source_patterns}
    ]
    module._weight_conversions = class_conversions  # type: ignore[assignment] # a plain attribute of transformers


def possible_renames(names: Collection[str]) -> list[dict[str, str]]:
    """Ways to drop what wrappers and programs put into the names of weights.

    Those that drop the least come first.
    """
    unwrapped_names = {name: _without_wrappers(name) for name in names}
    options = [unwrapped_names]
    for depth in range(1, MAX_OUTER_PARTS + 1):
        outer = _common_prefix(unwrapped_names.values(), depth)
        if outer is not None:
            options.append(
                {name: plain.removeprefix(outer) for name, plain in unwrapped_names.items()}
            )
    renames = []
    for option in options:
        is_injective = len(set(option.values())) == len(option)
        if is_injective and any(name != plain for name, plain in option.items()):
            renames.append(_prefix_renames(option))
    return renames


def _without_wrappers(name: str) -> str:
    *modules, leaf = name.split(".")
    return ".".join([*(module for module in modules if module not in WRAPPERS), leaf])


def _common_prefix(names: Collection[str], depth: int) -> str | None:
    """The first components of most names, with a dot; None if no such prefix is that common."""
    prefixes = Counter(
        ".".join(name.split(".")[:depth]) + "." for name in names if name.count(".") >= depth
    )
    if not prefixes:
        return None
    prefix, count = prefixes.most_common(1)[0]
    if 2 * count > len(names):
        return prefix
    return None


def _prefix_renames(plain_names: Mapping[str, str]) -> dict[str, str]:
    """{prefix of stored names: what it becomes}, given every name's plain one."""
    renames: dict[str, str] = {}
    for name, plain in plain_names.items():
        if name == plain:
            continue
        stored_parts = name.split(".")
        plain_parts = plain.split(".")
        while plain_parts and stored_parts[-1] == plain_parts[-1]:
            stored_parts.pop()
            plain_parts.pop()
        renames[_prefix(stored_parts)] = _prefix(plain_parts)
    return renames


def _prefix(parts: Sequence[str]) -> str:
    """Components of a name with a dot behind each; empty for none."""
    return "".join(f"{part}." for part in parts)


def _prefix_sentence(renames: Mapping[str, str]) -> str:
    shortest = min(renames, key=lambda prefix: (len(prefix), prefix))
    components = [part for prefix in renames for part in prefix.split(".")]
    origins = sorted({WRAPPERS[part] for part in components if part in WRAPPERS})
    origin = " and ".join(origins) or "the program that saved them"
    remainder = ""
    if len(renames) > 1:
        remainder = f" and {len(renames) - 1} more like it"
    return (
        f"its weights are read without the prefix {shortest!r}{remainder}, which {origin} put "
        "before their names"
    )


# How stored weights fit a class: what is left out, why that is harmless, and what is refused.

CONSTANTS = re.compile(
    r"(^|[._])(inv_freq|masked_bias|position_ids|token_type_ids|num_batches_tracked|relative_position_index|cos_cached|"
    r"sin_cached|freqs_cis|_float_tensor)$"
)
OPTIONAL_PARTS = ("pooler", "contact_head")  # of a model's body, which read its last layer alone
KNOWN_HEADS = re.compile(
    r"^(cls\.(seq_relationship|predictions)|classifier|classification_head|score|lm_head|qa_outputs|qa_classifier|"
    r"pred_layer|predictions|sop_classifier|lm_predictions|mask_predictions|discriminator_predictions|"
    r"generator_predictions|generator_lm_head|vocab_\w+|pre_classifier|sequence_summary|multiple_choice_head)(\.|$)"
)
# Parts beside a class's own that change what it reads (learned prompts) or what it answers (a
# decoder of labels).
ACTS_ON_ANSWERS = re.compile(r"^(crf|prefix_encoder|prompt_\w+|soft_prompt\w*)$", re.IGNORECASE)
# Both of BERT's are in one module.
HEAD_BESIDE_ANOTHER = re.compile(r"^cls\.(seq_relationship|predictions)$")
IN_A_LAYER = re.compile(r"\.\d+\.")
ADAPTERS = re.compile(
    r"(^|\.)(lora_\w+|base_layer|modules_to_save|original_module|ia3_l|hada_w\w*|lokr_w\w*)(\.|$)"
)


@dataclass(frozen=True)
class WeightFit:
    """How a file's weights are read into a class that has all it needs.

    Attributes:
        renames: {prefix of stored names: what it becomes}; empty if names are as the class has
            them.
        sentences: What is left out or renamed, and why that changes no answer.
    """

    renames: Mapping[str, str]
    sentences: tuple[str, ...]

    @property
    def note(self) -> str:
        """The sentences in one line, without a full stop."""
        return "; ".join(self.sentences)


def fit_weights(
    kind: type[PreTrainedModel],
    config: PretrainedConfig,
    shapes: Shapes,
    name: str,
    *,
    with_new_head: bool = False,
) -> WeightFit:
    """How stored weights fit a class, told by names and shapes.

    Args:
        kind: the model's class.
        config: its configuration.
        shapes: {name: shape} of the stored weights.
        name: the model, in messages.
        with_new_head: whether all but the model's body is made anew, and its pooler where the file
            has none.

    Raises:
        HeadlabError: the class needs weights that the file lacks, or the file has weights without
            which the class computes something else.
        what transformers raises for a configuration that it cannot build.
    """
    module, renames, report = _closest_fit(kind, config, shapes, with_new_head)
    return judge_report(module, report, shapes, name, renames=renames, with_new_head=with_new_head)


def judge_report(
    module: PreTrainedModel,
    report: LoadReport,
    shapes: Shapes,
    name: str,
    *,
    renames: Mapping[str, str] | None = None,
    with_new_head: bool = False,
) -> WeightFit:
    """What the differences between stored weights and a class's mean for its answers.

    Args:
        module: of that class, with its configuration.
        report: the differences.
        shapes: {name: shape} of the stored weights.
        name: the model, in messages.
        renames: as in `WeightFit`; None for none.
        with_new_head: as in `fit_weights`.

    Raises:
        HeadlabError: as `fit_weights`.
    """
    renames = renames or {}
    config = module.config
    plain_shapes = {_rename(key, renames): shape for key, shape in shapes.items()}
    inspection = _Inspection(module, plain_shapes)
    absent = _needed_but_absent(report, module, with_new_head)
    foreign = inspection.not_harmless(report.unexpected, with_new_head)
    if absent or foreign:
        _require_no_adapter(shapes, name)
    if absent:
        raise _lacking_error(report, absent, config, name, quantised_clause(shapes, config, name))
    if foreign:
        raise _foreign_error(foreign, inspection, name, quantised_clause(shapes, config, name))
    sentences = inspection.left_out(report.unexpected)
    if renames:
        sentences.insert(0, _prefix_sentence(renames))
    if _pruned_heads(config):
        sentences.append(
            "its config.json names pruned heads, but its weights have them all, so that all are "
            "used"
        )
    return WeightFit(renames, tuple(sentences))


def _closest_fit(
    kind: type[PreTrainedModel], config: PretrainedConfig, shapes: Shapes, with_new_head: bool
) -> tuple[PreTrainedModel, Mapping[str, str], LoadReport]:
    """The class without memory, the renames that leave fewest weights missing, and the report.

    Arguments as in `fit_weights`.
    """
    best_renames: Mapping[str, str] = {}
    module, best_report = load_without_memory(kind, config, shapes, best_renames)
    options = (
        possible_renames(shapes) if _needed_but_absent(best_report, module, with_new_head) else []
    )
    known_names = _known_names(module)
    known_count = sum(name in known_names for name in shapes)
    for renames in options:
        count_if_renamed = sum(_rename(name, renames) in known_names for name in shapes)
        # Building a class of many layers again takes seconds.
        if known_count and count_if_renamed <= known_count:
            continue
        _, report = load_without_memory(kind, config, shapes, renames)
        if len(_needed_but_absent(report, module, with_new_head)) < len(
            _needed_but_absent(best_report, module, with_new_head)
        ):
            best_renames = renames
            best_report = report
    return module, best_renames, best_report


def _known_names(module: PreTrainedModel) -> set[str]:
    """The names under which a class finds its weights.

    They are its own, and those that its body has by itself.
    """
    names = set(module.state_dict())
    prefix = f"{module.base_model_prefix}."
    return names | {name.removeprefix(prefix) for name in names}


def _needed_but_absent(
    report: LoadReport, module: PreTrainedModel, with_new_head: bool
) -> list[str]:
    """Weights that transformers would make up, and that nobody else makes anew."""
    if not with_new_head:
        return report.absent
    body = f"{module.base_model_prefix}."
    return [key for key in report.absent if key.startswith(body) and "pooler" not in key]


def _rename(name: str, renames: Mapping[str, str]) -> str:
    prefix = max((prefix for prefix in renames if name.startswith(prefix)), key=len, default="")
    if prefix:
        return renames[prefix] + name.removeprefix(prefix)
    return name


class _Inspection:
    """What the weights that a class does not take would have done in it."""

    def __init__(self, module: PreTrainedModel, shapes: Shapes) -> None:
        self.kind = type(module).__name__
        self.prefix = f"{module.base_model_prefix}."
        self.shapes = shapes
        self.modules = {path for path, _ in module.named_modules() if path}
        self.has_body = module.base_model_prefix in self.modules
        self.is_prefixed = any(key.startswith(self.prefix) for key in shapes)

    def not_harmless(self, names: Iterable[str], with_new_head: bool) -> list[str]:
        """The weights without which the class computes something else than was trained.

        `with_new_head` as in `fit_weights`.
        """
        foreign = sorted(
            name for name in names if not (self.is_constant(name) or self.is_unused_part(name))
        )
        if with_new_head:
            return [name for name in foreign if self.is_in_body(name)]
        return foreign

    def is_constant(self, name: str) -> bool:
        """Whether a weight is a buffer that transformers makes itself.

        Such are positions and masks.
        """
        shape = self.shapes.get(name, ())
        is_causal_mask = (
            name.endswith((".attn.bias", ".attention.bias"))
            and shape[:2] == (1, 1)
            and len(shape) == 4
        )
        return is_causal_mask or CONSTANTS.search(name) is not None

    def is_unused_part(self, name: str) -> bool:
        """Whether a weight belongs to a part beside the class's own.

        The class does not read the outputs of such a part.
        """
        path, in_body = self._placed(name)
        unknown = self._first_unknown(path)
        if unknown is None:
            return False
        if unknown.rpartition(".")[2] in OPTIONAL_PARTS:
            return True
        if in_body or ACTS_ON_ANSWERS.match(unknown):
            return False
        return "." not in unknown or HEAD_BESIDE_ANOTHER.match(unknown) is not None

    def is_in_body(self, name: str) -> bool:
        """Whether a weight lies in the model's body, and not in a head on top of it."""
        return self._placed(name)[1]

    def _placed(self, name: str) -> tuple[str, bool]:
        """A stored name as the class would have it, and whether it lies in the model's body."""
        is_named_as_body = name.startswith(self.prefix)
        if self.has_body:
            if is_named_as_body:
                return name, True
            if (
                self.is_prefixed
                or name.partition(".")[0] in self.modules
                or KNOWN_HEADS.match(name)
            ):
                return name, False
            return self.prefix + name, True
        if is_named_as_body:
            return name.removeprefix(self.prefix), True
        return name, not self.is_prefixed and KNOWN_HEADS.match(name) is None

    def _first_unknown(self, path: str) -> str | None:
        """The outermost module on the way to a weight that the class does not have.

        None if it has them all.
        """
        parts = path.split(".")[:-1]
        for depth in range(1, len(parts) + 1):
            module = ".".join(parts[:depth])
            if module not in self.modules:
                return module
        return None

    def left_out(self, names: Collection[str]) -> list[str]:
        """What is left out, and why that is harmless, in sentences."""
        constants = sorted(name for name in names if self.is_constant(name))
        parts = sorted(name for name in names if not self.is_constant(name))
        sentences = []
        if parts:
            sentences.append(
                f"{_weights_listed(parts)} in its files {_is_are(parts)} left out: {self.kind} "
                "has no such part, and all that it computes with is there"
            )
        if constants:
            sentences.append(
                f"{_weights_listed(constants)} in its files {_is_are(constants)} left out: no "
                "trained weights, but constants that transformers makes itself"
            )
        return sentences

    def layers_beyond(self, names: Iterable[str]) -> tuple[str, int, int] | None:
        """A list of layers, how many of them the file has, and how many the class.

        None if it has no more.
        """
        counts: dict[str, int] = {}
        for name in names:
            unknown = self._first_unknown(self._placed(name)[0])
            layers, _, index = (unknown or "").rpartition(".")
            if index.isdecimal() and layers in self.modules:
                counts[layers] = max(counts.get(layers, 0), int(index) + 1)
        if not counts:
            return None
        layers = max(counts, key=lambda path: counts[path])
        built = {path for path in self.modules if re.fullmatch(rf"{re.escape(layers)}\.\d+", path)}
        return layers, counts[layers], len(built)


def _weights_listed(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the weight {names[0]}"
    return f"{len(names)} weights ({names[0]}…)"


def _is_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _pruned_heads(config: PretrainedConfig) -> bool:
    table = getattr(config, "pruned_heads", None)
    return isinstance(table, Mapping) and any(table.values())


def _require_no_adapter(names: Iterable[str], name: str) -> None:
    parts = sorted(key for key in names if ADAPTERS.search(key))
    if parts:
        raise HeadlabError(
            f"{name} holds {_weights_listed(parts)} of an adapter that is not merged; merge it "
            "into its base (peft's merge_and_unload) and save that",
            code="model.is_adapter",
        )


def _lacking_error(
    report: LoadReport,
    lacking: Sequence[str],
    config: PretrainedConfig,
    name: str,
    quantised_remedy: str,
) -> HeadlabError:
    """The error for weights that the class needs and the file lacks, or has in another shape.

    Args:
        report: of the differences.
        lacking: the weights.
        config: the model's configuration.
        name: the model, in messages.
        quantised_remedy: how the stored weights are quantised and what to do; empty if they are
            not.
    """
    if _pruned_heads(config) and any(IN_A_LAYER.search(key) for key in report.mismatched):
        return HeadlabError(
            f"{name} has fewer heads than its class: transformers 4 pruned them (pruned_heads in "
            "its config.json), and later versions cannot build such a model; load the model it "
            "was pruned from, with the mask that headlab mask convert config.json prints",
            code="model.heads_pruned",
        )
    details = []
    mismatched_names = sorted({*report.mismatched} & {*lacking})
    if mismatched_names:
        stored_shape, class_shape = (
            list(shape) for shape in report.mismatched[mismatched_names[0]]
        )
        details.append(
            f"{mismatched_names[0]} is {stored_shape} in its files, {class_shape} by its config"
        )
    if report.missing and report.unexpected:
        details.append(
            f"its files have {_weights_listed(sorted(report.unexpected))} instead: they are of "
            "another class"
        )
    detail = f": {'; '.join(details)}" if details else ""
    count = "1 weight" if len(lacking) == 1 else f"{len(lacking)} weights"
    remedy = quantised_remedy or "use a complete model, with the config.json it was saved with"
    return HeadlabError(
        f"{name} lacks {count} its config asks for, or has them in another shape "
        f"({lacking[0]}…){detail}; {remedy}",
        code="model.weights_missing",
    )


def _foreign_error(
    names: Sequence[str], inspection: _Inspection, name: str, quantised_remedy: str
) -> HeadlabError:
    """The error for weights that a class would ignore though the model was trained with them.

    Args:
        names: of the weights.
        inspection: of the class.
        name: the model, in messages.
        quantised_remedy: as in `_lacking_error`.
    """
    layer_counts = inspection.layers_beyond(names)
    if layer_counts is not None:
        layers, stored_count, class_count = layer_counts
        return HeadlabError(
            f"{name} has weights of {stored_count} layers ({layers}), but its config asks for "
            f"{class_count}, so it would run without the others; correct its config.json, or save "
            "the model again",
            code="model.weights_unused",
        )
    remedy = quantised_remedy or "use the class and the config.json it was saved with"
    return HeadlabError(
        f"{name} holds {_weights_listed(names)} that {inspection.kind} with this config does not "
        f"take, so it would compute something else than it was trained for; {remedy}",
        code="model.weights_unused",
    )
