"""Training a language model from nothing on a text, and the folder it becomes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.models.allattention.config import AllAttentionConfig
from headlab.models.allattention.modelling import AllAttentionForCausalLM
from headlab.models.allattention.sizes import parameters
from headlab.models.alone import alone
from headlab.records import content_key
from headlab.training.lm.judged import FILE, Judge, Sums, kept, told
from headlab.training.lm.options import TRANSFORMER, LmOptions
from headlab.training.lm.steps import SMALLER, LmSteps, Watch, new_state
from headlab.training.lm.text import Lines, data_hash, encode
from headlab.training.lm.tokens import make_tokenizer
from headlab.training.output import LIBRARIES, TAIL, Made, check_out, whole_made, write_folder
from headlab.training.place import checkpoint_beside
from headlab.training.state import State
from headlab.training.steps import Keep, fits_in_memory, torch_seed


def train_lm(
    lines: Lines, out: Path, options: LmOptions | None = None, *, device: str = "cpu", watch: Watch | None = None
) -> Path:
    """Train on the lines of "train", judge on "valid" and "test", and write the folder `out`; returns `out`.

    The folder is an ordinary one of transformers with its tokenizer, which `headlab.load` reads, and holds
    perplexity.json (sums by passage) and training.json.  A run that was stopped goes on from the file beside `out` and
    ends with the same weights.  Deterministic for a seed, thread count and processor.  Raises HeadlabError for
    unusable options or text.
    """
    options, watch = options or LmOptions(), watch or Watch()
    options.check()
    check_out(out)
    data = data_hash(lines)
    tokenizer = make_tokenizer(lines["train"], options.tokenizer, options.vocabulary)
    texts = {split: encode(tokenizer, part) for split, part in lines.items()}
    keep = keep_beside(out, content_key({"options": options.record(), "data": data}), watch)
    place = torch.device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(torch_seed(options.seed))
        model = new_model(config_of(options, tokenizer), place)
        state = new_state(model, options.weight_decay)
        LmSteps(model, texts["train"], options, state).run(keep, watch)
    model.train(False)
    judge = Judge(texts, options.block, watch)
    sums = judge(model)
    record = {"options": options.record(), "data": {"sha256": data, "tokens": texts["train"].asked}}
    write_lm(out, model, tokenizer, sums, record | common(model, device, state, judge), data, options.block)
    keep.path.unlink(missing_ok=True)
    return out


def config_of(options: LmOptions, tokenizer: PreTrainedTokenizerBase) -> AllAttentionConfig:
    """The model's sizes, as the options ask for them."""
    ends = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return sized(options, len(tokenizer), **ends)


def sized(options: LmOptions, vocabulary: int, **ends: int) -> AllAttentionConfig:
    """The sizes that options ask for, with so many words in the table."""
    plain = options.kind == TRANSFORMER
    return AllAttentionConfig(
        vocab_size=vocabulary, hidden_size=options.width,
        head_size=options.head_size or options.width // options.heads,
        heads_per_layer=[options.heads] * options.layers, persistent=0 if plain else options.persistent,
        feed_forward=options.persistent if plain else 0, positions=options.positions,
        max_position_embeddings=options.block, pre_norm=options.pre_norm, dropout=options.dropout, **ends,
    )  # fmt: skip


def new_model(config: AllAttentionConfig, device: torch.device) -> AllAttentionForCausalLM:
    """A model of these sizes, drawn from torch's generator. Raises HeadlabError where it does not fit in memory."""
    with alone(), fits_in_memory("the model does", SMALLER):
        model = AllAttentionForCausalLM(config)
        torch.nn.Module.to(model, device)
    return model


def keep_beside(out: Path, key: str, watch: Watch) -> Keep:
    """Where a training's state is kept until its folder is written: beside it."""
    return Keep(checkpoint_beside(out, key), key, watch.checkpoint_every, watch.checkpoint_share)


def common(
    model: AllAttentionForCausalLM, device: str, state: State | None, judge: Judge, before: float = 0.0
) -> dict[str, Any]:
    """What every training of a language model records; state: that it ended in, None if there were no steps.

    before: seconds of training that came before those of the state.
    """
    found = parameters(model.config)
    losses = state.losses if state is not None else []
    seconds = before + (state.seconds if state is not None else 0.0)
    took = {"seconds": round(seconds, 1), "judging": round(judge.seconds, 1), "device": device}
    return {
        "loss": {"first": losses[0], "last": float(np.mean(losses[-TAIL:]))} if losses else {},
        "took": took | {"threads": torch.get_num_threads(), "rows_that_fitted": state.rows if state is not None else 0},
        "parameters": {"whole": found.whole, "layers": found.layers},
        "heads": list(model.config.heads_per_layer),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
    }


def write_lm(
    out: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sums: Sums, record: Mapping[str, Any],
    data: str, block: int,
) -> None:  # fmt: skip
    """Write the folder whole or not at all: model, tokenizer, sums by passage and how they were made."""
    made = whole_made(model, tokenizer)
    made = Made(made.weights, made.file, {**made.texts, FILE: kept(sums, data, block)}, tokenizer)
    write_folder(out, made, {**record, "perplexity": told(sums)})
