"""Any task of lm-evaluation-harness with some heads off: its `LM`, and a comparison with the untouched model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lm_eval
import numpy as np
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import StoppingCriteria, StoppingCriteriaList

from headlab.encoding import IGNORED, Asked, context_length, encoded, predicts_next
from headlab.errors import HeadlabError
from headlab.evaluator import cut, token_budget
from headlab.hooks.model import Model, as_gates
from headlab.hooks.state import Active
from headlab.masks import Mask, full_mask
from headlab.parallel import one_thread, spread
from headlab.records import Floats
from headlab.stats import paired_bootstrap
from headlab.stats.bootstrap import DRAWS, FEW, resampled_sums, summary
from headlab.value_functions import log_probability

NEW_TOKENS = 256  # of a generated answer, where the task does not say


Pair = tuple[Any, list[int], list[int]]  # texts, tokens of the context, tokens of the continuation


class GatedLM(TemplateLM):  # type: ignore[misc] # lm_eval ships no types
    """A decoder for `lm_eval.simple_evaluate`, with the heads of a mask off; None: all on.

    Contexts that are too long lose their beginning, as in the harness's own models.  Raises HeadlabError for a model
    that is no decoder language model, and for another model's mask.
    """

    def __init__(self, model: Model, mask: Mask | None = None) -> None:
        super().__init__()
        if not predicts_next(model):
            raise HeadlabError(
                f"{model.name} is a {type(model.module).__name__}; lm-evaluation-harness needs a decoder language "
                "model",
                code="model.not_language_model",
            )
        self.model, self.tokenizer = model, model.tokenizer
        self._gates = as_gates(model, full_mask(model.grid) if mask is None else mask)

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        end = self.tokenizer.eos_token_id
        if end is None:
            raise HeadlabError(
                f"the tokenizer of {self.model.name} has no end token, which lm-evaluation-harness needs; set "
                "eos_token and save it into the folder",
                code="tokenizer.no_end",
            )
        return int(end)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without a context."""
        start = self.tokenizer.bos_token_id
        return self.eot_token_id if start is None else int(start)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Tokens of a text, after a start token where the tokenizer puts one and the text does not begin with it."""
        start = self.tokenizer.bos_token
        if add_special_tokens is None and not (start and string.startswith(start)):
            return encoded(self.model, [string])[0]
        return list(self.tokenizer(string, add_special_tokens=bool(add_special_tokens))["input_ids"])

    def _loglikelihood_tokens(self, requests: Sequence[Pair], **_: Any) -> list[tuple[float, bool]]:
        most = context_length(self.model)
        wholes = [([*context, *rest][-most - 1 :], rest[-most:]) for _, context, rest in requests]
        rows = [whole[:-1] for whole, _ in wholes]
        asked = [list(range(len(row) - len(rest), len(row))) for row, (_, rest) in zip(rows, wholes, strict=True)]
        names = [str(number) for number in range(len(rows))]
        inputs = Asked(self.model, "lm-eval", names, rows, asked, [rest for _, rest in wholes])
        found: dict[int, tuple[float, bool]] = {}
        with one_thread(self.model.device):
            batches = list(cut(inputs, np.arange(len(rows)), token_budget(self.model)))
        for batch, part in spread(
            batches, lambda batch, _: self._sums(inputs, batch), on=self.model, tick=lambda: None
        ):
            found |= zip(batch.rows.tolist(), part, strict=True)
        return [found[row] for row in range(len(rows))]

    def _sums(self, inputs: Asked, batch: Any) -> list[tuple[float, bool]]:
        """Log-probability of each continuation of a batch, and whether it is what greedy decoding gives."""
        with torch.inference_mode(), self.model.active(Active(gates=self._gates)):
            logits = inputs.logits(batch.inputs).float()
        wanted = inputs.targets(batch.rows)
        real = wanted != IGNORED
        each = log_probability(logits, wanted.clamp(min=0))
        greedy = ((logits.argmax(dim=-1) == wanted) | ~real).all(dim=-1)
        return list(zip((each * real).sum(dim=-1).tolist(), greedy.tolist(), strict=True))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of whole texts, in windows that fit the model."""
        out = []
        for request in requests:
            tokens, most = self.tok_encode(request.args[0]), context_length(self.model)
            windows = get_rolling_token_windows(tokens, self.prefix_token_id, most, 1)
            pairs = [(None, *make_disjoint_window(window)) for window in windows]
            out.append(sum(value for value, _ in self._loglikelihood_tokens(pairs)))
        return out

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations up to a text that ends them, one request after the other."""
        return [self._written(*request.args) for request in requests]

    def _written(self, context: str, settings: Mapping[str, Any]) -> str:
        ends = settings.get("until") or []
        ends = [ends] if isinstance(ends, str) else list(ends)
        new = int(settings.get("max_gen_toks", NEW_TOKENS))
        ids = self.tok_encode(context)[-max(1, context_length(self.model) - new) :] or [self.prefix_token_id]
        module: Any = self.model.module
        given = torch.tensor([ids], device=self.model.device)
        with torch.inference_mode(), self.model.active(Active(gates=self._gates)):
            out = module.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=new, do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id or self.eot_token_id,
                stopping_criteria=StoppingCriteriaList([Ends(self.tokenizer, len(ids), ends)]),
            )  # fmt: skip
        text = str(self.tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True))
        return text[: min((text.find(end) for end in ends if end in text), default=len(text))]


class Ends(StoppingCriteria):
    """Stops when one of some texts has been written. start: number of tokens before what is written."""

    def __init__(self, tokenizer: Any, start: int, ends: Sequence[str]) -> None:
        self.tokenizer, self.start, self.ends = tokenizer, start, ends

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Whether each row is done, bool [row]."""
        texts = self.tokenizer.batch_decode(input_ids[:, self.start :])
        return torch.tensor([any(end in text for end in self.ends) for text in texts], device=input_ids.device)


def compared(
    model: Model, tasks: Sequence[str], mask: Mask | None = None, *, size: int | None = None, seed: int = 0,
    folder: str | None = None,
) -> dict[str, dict[str, dict[str, float]]]:  # fmt: skip
    """{task: {metric: figures}} of tasks of the harness; with a mask, paired with the untouched model by document.

    size: documents of each task.  folder: of further tasks, as YAML files.  Raises HeadlabError for tasks that the
    harness does not know or whose data it cannot fetch.
    """
    try:
        manager = TaskManager(include_path=folder)
        runs = [
            lm_eval.simple_evaluate(
                model=GatedLM(model, kept), tasks=list(tasks), limit=size, task_manager=manager, bootstrap_iters=0,
            )
            for kept in ([None] if mask is None else [None, mask])
        ]  # fmt: skip
    except HeadlabError:
        raise
    except Exception as error:  # the harness and the loaders of its tasks raise what they like
        raise HeadlabError(
            f"lm-evaluation-harness could not run {', '.join(tasks)} ({type(error).__name__}: {error}); check the "
            "names (lm-eval ls tasks), and that their data can be fetched",
            code="lm_eval.failed",
        ) from error
    return {task: dict(_figures(task, runs, seed)) for task in runs[0]["samples"]}


def _figures(task: str, runs: Sequence[Mapping[str, Any]], seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each metric that the harness gives of every document, with its mean, and the difference under a mask."""
    first = runs[0]["samples"][task]
    names = tuple(str(sample["doc_id"]) for sample in first)
    for metric in first[0]["metrics"]:
        values = [[sample[metric] for sample in run["samples"][task]] for run in runs]
        if metric in RATES:
            yield metric, {**_rate(metric, values, seed), "n": len(first)}
        elif all(isinstance(value, int | float) for one in values for value in one):
            told = {metric: float(np.mean(values[-1])), "n": len(first)}
            if len(values) > 1:
                before, after = (np.asarray(one, dtype=np.float64) for one in values)
                found = paired_bootstrap(before, after, names, np.random.default_rng(seed))
                told |= {"baseline": float(np.mean(values[0])), **found._asdict()}
            yield metric, told


RATES = ("bits_per_byte", "byte_perplexity", "word_perplexity")


def _shown(metric: str, nats: Floats) -> Floats:
    """What the harness makes of the nats that texts lose, per byte or word."""
    return nats / np.log(2) if metric == "bits_per_byte" else np.exp(nats)


def _rate(metric: str, values: Sequence[Sequence[tuple[float, float]]], seed: int) -> dict[str, float]:
    """A rate over all documents, and its paired difference, with an interval where there are `FEW` documents or more.

    values: (log-probability, size) of each document, without a mask and, if there is one, with it.
    """
    columns = np.stack([*(-np.array(one)[:, 0] for one in values), np.array(values[0])[:, 1]], axis=1)
    *lost, size = columns.sum(axis=0)
    rates = [float(_shown(metric, one / size)) for one in lost]
    told = {metric: rates[-1]}
    if len(rates) > 1:
        told |= {"baseline": rates[0], "difference": rates[1] - rates[0]}
        if len(columns) >= FEW:
            before, after, sizes = resampled_sums(columns, [seed], DRAWS)
            gains = _shown(metric, after / sizes) - _shown(metric, before / sizes)
            found = summary(gains[None], 0.95)
            told |= {name: float(value[0]) for name, value in zip(("low", "high", "p"), found, strict=True)}
    return told
