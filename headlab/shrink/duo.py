"""Which key-value groups stream, in the files that DuoAttention and kvpress read.

DuoAttention (mit-han-lab/duo-attention, `duo_attn.utils.load_attn_pattern`) reads a folder with
full_attention_heads.tsv, one line of numbers from 0 to 1 for each layer and one column for each
key-value head, and config.json with `sink_size` and `recent_size`.  kvpress (NVIDIA/kvpress,
`DuoAttentionPress`) reads the same two files, by default of patterns it knows by the model's name.
kvpress 0.5.5 was run on such folders: it masks the keys of their streaming groups and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from headlab.core import (
    USUAL_SIZES,
    Floats,
    HeadlabError,
    StreamingSizes,
    do_nothing,
    is_streaming,
    read_json,
    streaming_sizes,
    write_atomic,
    write_json,
)
from headlab.hooks import ActiveGates, Model, heads_per_group
from headlab.hooks.state import activate
from headlab.masks import MIXED_ABLATION, Mask
from headlab.models import file_hashes, replacing_folder
from headlab.shrink.folder import CARD, CONFIG, DUO_TABLE, MASK, PROOF, check_target, finish_folder

TEXTS = 2
"""Random texts that the proof is made on."""
TOKENS_BEYOND = 32
"""How many tokens each has more than a streaming group sees."""
DUO_ATTENTION = "DuoAttention"
KVPRESS = "kvpress"
PATCHED_TYPES = ("llama", "mistral")
"""Types of models that DuoAttention patches."""


class DuoRecord(TypedDict):
    """What was written, as proof.json has it.

    Attributes:
        form: "duo".
        groups: Key-value groups of the model.
        streaming: How many of them stream.
        sparsity: Their share, which both readers ask for.
        sink_size: How many of the first tokens they see.
        recent_size: How many of the last tokens they see.
        chosen_under: The ablation that the mask was chosen under; None if it is not recorded.
        texts: Number of random texts of the proof.
        tokens: Tokens of each.
        max_logit_difference: How far the logits under the files as read back are from those under
            the mask: 0.
        untouched_difference: How far they are from the untouched model's.
        readers: The programs that take a model of this type.
        fingerprint: Of the model.
        command: That writes the same.
    """

    form: str
    groups: int
    streaming: int
    sparsity: float
    sink_size: int
    recent_size: int
    chosen_under: str | None
    texts: int
    tokens: int
    max_logit_difference: float
    untouched_difference: float
    readers: list[str]
    fingerprint: str
    command: list[str]


class DuoPattern(NamedTuple):
    """A folder of DuoAttention, as its readers read it.

    Attributes:
        table: 1 for a group that sees all tokens, 0 for one that streams, [layer, group].
        sizes: What the others see.
    """

    table: Floats
    sizes: StreamingSizes


def sizes_of_mask(mask: Mask) -> StreamingSizes:
    """What streaming groups see: what they saw when the mask was chosen, else the usual sizes.

    Raises:
        HeadlabError: The mask was made of masks that were chosen under several ablations.
    """
    if mask.ablation == MIXED_ABLATION:
        raise HeadlabError(
            "the mask combines others that were chosen under several ablations, so no two sizes are those of its "
            f"groups; choose one under --ablation {USUAL_SIZES}",
            code="duo.mask_mixed",
        )
    return streaming_sizes(mask.ablation or "") or USUAL_SIZES


def remark_on(mask: Mask) -> str:
    """What to know of a mask whose groups were not chosen to stream; empty if they were."""
    if mask.ablation is not None and is_streaming(mask.ablation):
        return ""
    chosen = f"chosen under {mask.ablation} ablation" if mask.ablation else "of no known ablation"
    return (
        f"the mask is {chosen}, and a streaming group sees the first and last tokens instead: measure it with headlab "
        f"evaluate --ablation {USUAL_SIZES}"
    )


def table_of(model: Model, mask: Mask) -> Floats:
    """1 for each key-value group that a mask keeps, 0 for each that it removes, [layer, group].

    Args:
        model: Whose players are those of the mask.
        mask: Of heads, key-value groups or whole attentions.

    Raises:
        HeadlabError: The mask is another model's, of other players, or parts a group; or the model
            is no decoder with equally many groups in all layers.
    """
    mask.check(model.grid, model.fingerprint)
    model.require_ablation(str(sizes_of_mask(mask)))
    gates = model.grid.gates(mask.kept)
    closed = gates == 0 if model.player_set is None else model.player_set.closed_heads(gates)
    heads = model.head_grid
    counts: set[tuple[int, int]] = set()
    if len(heads.stacks) == 1:
        counts |= set(zip(heads.stacks[0].heads, heads_per_group(model), strict=True))
    if len(counts) != 1:
        raise HeadlabError(
            f"{model.name} has layers with different numbers of key-value groups, and DuoAttention reads a table with "
            "as many in each; use --as folder",
            code="duo.groups_uneven",
        )
    ((count, shared),) = counts
    by_group = closed[:, :count].reshape(heads.layers, count // shared, shared)
    parted = by_group.any(axis=2) & ~by_group.all(axis=2)
    if parted.any():
        layer, group = np.argwhere(parted)[0].tolist()
        raise HeadlabError(
            f"{int(parted.sum())} key-value groups keep some of their heads and lose others (the first is group "
            f"{group} of layer {layer}), and DuoAttention lets whole groups stream; choose a mask of groups with "
            "headlab score --players kv-groups",
            code="duo.group_parted",
        )
    return np.asarray(1.0 - by_group[:, :, 0])


def readers_of(model: Model) -> list[str]:
    """The programs that take a model of this type.

    DuoAttention patches two types of models.  kvpress hooks the attention of `model.layers`, which
    models named otherwise, such as GPT-2, do not have.
    """
    readers = []
    if model.module.config.model_type in PATCHED_TYPES:
        readers.append(DUO_ATTENTION)
    layers = getattr(getattr(model.module, "model", None), "layers", None)
    if layers is not None and hasattr(layers[0], "self_attn"):
        readers.append(KVPRESS)
    return readers


def read_pattern(folder: Path) -> DuoPattern:
    """The files of a folder, read in the steps of DuoAttention's `load_attn_pattern`."""
    table = np.loadtxt(folder / DUO_TABLE, dtype=float, delimiter="\t", ndmin=2)
    config = read_json(folder / CONFIG)
    sizes = StreamingSizes(config["sink_size"], config["recent_size"])
    return DuoPattern(np.clip(table, 0, 1), sizes)


def write_duo_folder(
    model: Model,
    mask: Mask,
    target: Path,
    *,
    command: Sequence[str] = (),
    tick: Callable[[], None] = do_nothing,
) -> DuoRecord:
    """Write the groups of a mask that stream, with card, mask and proof, atomically.

    The files are read back, and the model gives the same logits under them as under the mask.

    Args:
        model: Whose players are those of the mask.
        mask: Its removed groups stream.
        target: Folder to write.
        command: That writes the same, for the record.
        tick: Called between passes; may raise to stop: nothing is left at `target` then.

    Raises:
        HeadlabError: As in `table_of`, or `target` holds something else.
    """
    check_target(target, model.name if model.checkpoint.revision == "folder" else None)
    table = table_of(model, mask)
    sizes = sizes_of_mask(mask)
    streaming = int((table == 0).sum())
    with replacing_folder(target) as build:
        lines = ["\t".join(f"{value:.1f}" for value in row) for row in table.tolist()]
        write_atomic(build / DUO_TABLE, ("\n".join(lines) + "\n").encode())
        config = {
            "model_name": model.name,
            "sink_size": sizes.first,
            "recent_size": sizes.last,
            "sparsity": streaming / table.size,
        }
        write_json(build / CONFIG, config)
        differences = _differences(model, mask, sizes, read_pattern(build), tick)
        record = DuoRecord(
            form="duo",
            groups=table.size,
            streaming=streaming,
            sparsity=streaming / table.size,
            sink_size=sizes.first,
            recent_size=sizes.last,
            chosen_under=mask.ablation,
            texts=TEXTS,
            tokens=_tokens(model, sizes),
            max_logit_difference=differences[0],
            untouched_difference=differences[1],
            readers=readers_of(model),
            fingerprint=model.fingerprint,
            command=list(command),
        )
        mask.save(build / MASK)
        write_atomic(build / CARD, _card(model, record).encode())
        write_json(build / PROOF, {**record, "files": file_hashes(build, PROOF)})
        finish_folder(build)
    return record


def _tokens(model: Model, sizes: StreamingSizes) -> int:
    """Tokens of a text of the proof: more than a streaming group sees, if the model takes them."""
    most = getattr(model.module.config.get_text_config(), "max_position_embeddings", None)
    tokens = sum(sizes) + TOKENS_BEYOND
    return min(tokens, most) if isinstance(most, int) else tokens


def _differences(
    model: Model,
    mask: Mask,
    sizes: StreamingSizes,
    pattern: DuoPattern,
    tick: Callable[[], None],
) -> tuple[float, float]:
    """How far logits under files are from those under the mask, and from the untouched model's.

    Raises:
        HeadlabError: The files do not say what the mask does.
    """
    vocabulary = int(model.module.config.get_text_config().vocab_size)
    ids = np.random.default_rng(0).integers(vocabulary, size=(TEXTS, _tokens(model, sizes)))
    inputs = {"input_ids": torch.as_tensor(ids, device=model.device)}
    shared = heads_per_group(model)[0]
    of_mask = _gates(model, model.grid.gates(mask.kept))
    of_files = _gates(model, np.repeat(pattern.table, shared, axis=1))
    logits = []
    with torch.inference_mode():
        for active in (
            ActiveGates(),
            model.expanded(ActiveGates(gates=of_mask, streaming=sizes)),
            ActiveGates(gates=of_files, streaming=pattern.sizes),
        ):
            tick()
            with activate(model.owner, active):
                logits.append(model.module(**inputs).logits.float())
    difference = float((logits[1] - logits[2]).abs().max())
    if difference:
        raise HeadlabError(
            f"the table that was written does not say what the mask does: logits differ by {difference:.2g}; please "
            "report it",
            code="duo.table_differs",
        )
    return difference, float((logits[2] - logits[0]).abs().max())


def _gates(model: Model, gates: npt.NDArray[np.generic]) -> torch.Tensor:
    return torch.as_tensor(gates, dtype=model.module.dtype, device=model.device)


def _card(model: Model, record: DuoRecord) -> str:
    """How the programs that take such a model read the folder, and which do not take it."""
    parts = [
        f"""# Streaming key-value groups of {model.name}

{record["streaming"]} of {record["groups"]} key-value groups see the first {record["sink_size"]} and the last {record["recent_size"]} tokens alone.
`{DUO_TABLE}` has a line for each layer and a column for each group: 1 sees all tokens, 0 streams.
"""
    ]
    parts.append(_duo_attention_lines(model, record))
    parts.append(_kvpress_lines(model, record))
    parts.append(
        """Both read a prompt with full attention and cut the cache of streaming groups afterwards; kvpress cuts it once, at the
prompt's end, and what follows is kept. headlab lets these groups stream from the first token on, as DuoAttention trains
them, so under `headlab evaluate --ablation streaming` each token sees less, and figures differ, up or down.
"""
    )
    return "\n".join(parts)


def _duo_attention_lines(model: Model, record: DuoRecord) -> str:
    link = "[DuoAttention](https://github.com/mit-han-lab/duo-attention)"
    if DUO_ATTENTION not in record["readers"]:
        return f"{link} takes Llama and Mistral models, and {model.name} is neither.\n"
    return f"""{link}, which asks for a GPU of NVIDIA's and has not been tried:

```python
from duo_attn.patch import enable_duo_attention_eval
from duo_attn.utils import load_attn_pattern, sparsify_attention_heads

heads, sink_size, recent_size = load_attn_pattern("THIS FOLDER")
heads, _ = sparsify_attention_heads(heads, sparsity={record["sparsity"]!r})
enable_duo_attention_eval(model, heads, sink_size, recent_size)
```
"""


def _kvpress_lines(model: Model, record: DuoRecord) -> str:
    link = "[kvpress](https://github.com/NVIDIA/kvpress)"
    if KVPRESS not in record["readers"]:
        return (
            f"{link} hooks the attention of `model.model.layers`, which {model.name} does not have, so it cannot run "
            "this model.\n"
        )
    return f"""{link} loads patterns by the model's name, so it is given this one:

```python
import numpy as np
from kvpress import DuoAttentionPress

table = np.loadtxt("THIS FOLDER/{DUO_TABLE}", delimiter="\\t", ndmin=2)
press = DuoAttentionPress(head_compression_ratio={record["sparsity"]!r})
press.load_attention_pattern = lambda model: ({record["sink_size"]}, {record["recent_size"]}, table)
```

The model is one of transformers', and its cache is cut at the end of what it reads in the `with` block, so a question
about a text goes after the block:

```python
from transformers import DynamicCache

cache = DynamicCache()
with press(model):
    model(text_ids, past_key_values=cache)
logits = model(question_ids, past_key_values=cache).logits
```

Tried with kvpress 0.5.5, which asks for transformers below 5.3.
"""
