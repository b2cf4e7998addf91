"""Section 5 of Held & Yang (EACL 2023): how often a head attends to nothing but separators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from headlab.core import Bools, Floats, HeadGrid, OptionValue, Progress, integer_in, text_in
from headlab.core.parallel import Tick, spread
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import Model, excluded_ids, sides, sum_weights
from headlab.stats import group_bootstrap, stratified_bootstrap
from headlab.studies.heads import RAW, claimed, in_every_top
from headlab.studies.result import Records
from headlab.studies.separators_result import HeadLooks, KindLooks, SeparatorsResult
from headlab.studies.table import Say

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


SEPARATOR = "separator"
KINDS = ("language-agnostic", "language-specific", "all")


@dataclass(frozen=True)
class Looks:
    """Where heads attend, sentence by sentence.

    tokens: float [sentence, head], share of a sentence's tokens whose largest weight is on a separator.
    groups: label [sentence]; sentences with the same label are resampled together.
    """

    tokens: Floats
    groups: tuple[str, ...]

    @property
    def whole(self) -> Bools:
        """Whether every token's largest weight is on a separator, bool [sentence, head]."""
        return np.asarray(self.tokens == 1)


def looks(
    evaluator: Evaluator, tokens: str = SEPARATOR, seen: Callable[[int], None] = lambda _: None
) -> Looks:
    """Where each head's tokens attend most, for all examples of an evaluator, in one pass.

    tokens: what counts as a separator, as in `excluded_ids`.  A token counts if its largest weight on a separator
    exceeds that on anything else (a tie does not count); padding neither attends nor is attended to.
    seen: called after every batch with the number of sentences done; may raise to stop.
    """
    model = evaluator.model
    ids = torch.tensor(excluded_ids(model.tokenizer, tokens), device=model.device)
    out, rows = np.zeros((len(evaluator.examples), model.grid.size)), 0
    layer, head = model.grid.flat.T

    def look(batch: Batch, tick: Tick) -> Floats:
        tick()
        return shares_of(model, batch, ids)[:, layer, head]

    batches = evaluator.batches(np.arange(len(evaluator.examples)))
    for batch, found in spread(batches, look, on=model, tick=evaluator.tick):
        out[batch.rows] = found
        rows += len(batch.rows)
        evaluator.forwards += len(batch.rows)
        seen(rows)
    return Looks(out, tuple(example.cluster for example in evaluator.examples))


def shares_of(model: Model, batch: Batch, ids: torch.Tensor) -> Floats:
    """Share of every sentence's tokens that attend most to one of `ids`, float [row, layer, head]."""
    out = np.zeros((len(batch.rows), model.grid.layers, model.grid.width))

    def add(row: int, weights: torch.Tensor) -> None:
        looking, target = sides(batch.inputs, model.grid.rows[row])
        real = target[1][:, None, None, :]
        separator = torch.isin(target[0], ids)[:, None, None, :] & real
        on, off = (
            weights.masked_fill(~which, -1).amax(dim=-1) for which in (separator, ~separator & real)
        )
        counted = ((on > off) & looking[1][:, None, :]).sum(dim=-1, dtype=torch.float64)
        out[:, row, : counted.shape[1]] = (counted / looking[1].sum(dim=-1)[:, None]).cpu().numpy()

    sum_weights(model, batch.inputs, add)
    return out


def run(pieces: Pieces, options: Mapping[str, OptionValue], report: Say) -> SeparatorsResult:
    """Share of sentences in which every token attends to a separator, per head and per kind of head, by language.

    options: method, method_options (of the scores that define the kinds of heads), tokens, top.
    """
    top = integer_in(options, "top")
    tokens = text_in(options, "tokens")
    found = {}
    for language in pieces.languages:
        report(f"where heads look in {language}")
        found[language] = _looks(pieces, language, tokens)
    kinds = _kinds(pieces, options, top)
    grid, rng = pieces.model.grid, np.random.default_rng(pieces.seed)
    # In this order, since both draw from one stream of random numbers.
    heads = head_records(found, grid, rng)
    kind_rows = kind_records(found, kinds, aligned=pieces.task.aligned, rng=rng)
    sizes = ", ".join(f"{name}: {int(kinds[name].sum())}" for name in KINDS)
    notes = (
        f"Looked at: {_words(pieces.model, tokens)}. Padding neither attends nor is attended to; all other tokens "
        "attend.",
        f"Heads by kind: {sizes}. Language-agnostic: among the {top} highest of every language; language-specific: "
        "helpful in one language and harmful in another by intervals that exclude 0 (not adjusted for many heads).",
        "Intervals: 95 %, by resampling groups of sentences, with a sentence added that counts and one that does not.",
    )
    return SeparatorsResult(heads=heads, kinds=kind_rows, notes=notes)


def cost(pieces: Pieces, options: Mapping[str, OptionValue]) -> list[Ask]:
    """The scores, and a pass over the dev examples of every language."""
    passes = [
        pieces.ask_passes(
            language, f"where heads look in {language}", len(pieces.examples(language, "dev"))
        )
        for language in pieces.languages
    ]
    return [*pieces.ask_study_scores(options), *passes]


def _looks(pieces: Pieces, language: str, tokens: str) -> Looks:
    evaluator, before = pieces.evaluator(language, "dev"), pieces.forwards
    evaluator.forget_states()  # frees memory for the attention weights

    def seen(rows: int) -> None:
        pieces.forwards = before + rows
        words = f"{rows} of {len(evaluator.examples)} sentences of {language}"
        pieces.report(Progress(pieces.forwards, pieces.forwards, words))

    evaluator.tick = pieces.tick
    return looks(evaluator, tokens, seen)


def _words(model: Model, tokens: str) -> str:
    names = model.tokenizer.convert_ids_to_tokens(excluded_ids(model.tokenizer, tokens))
    return (
        f"{tokens} tokens ({' '.join(f'`{name}`' for name in names) or 'the tokenizer has none'})"
    )


def _kinds(pieces: Pieces, options: Mapping[str, OptionValue], top: int) -> dict[str, Bools]:
    """{kind of KINDS: its heads, bool [head]}."""
    scores = {language: pieces.study_scores(language, options) for language in pieces.languages}
    agnostic, claims = in_every_top(scores, top), claimed(scores)
    specific = claims[RAW].both if claims else np.zeros_like(agnostic)
    return dict(
        zip(KINDS, (agnostic, specific, np.ones(pieces.model.grid.size, bool)), strict=True)
    )


def head_records(
    looks_by_language: Mapping[str, Looks], grid: HeadGrid, rng: np.random.Generator
) -> Records[HeadLooks]:
    """Every language and head: share of sentences with its interval, and mean share of tokens."""
    rows = []
    for language, seen in looks_by_language.items():
        share = seen.whole.astype(np.float64).T
        low, high, _ = group_bootstrap(share, seen.groups, rng, made_up=(1.0, 0.0))
        tokens = seen.tokens.mean(axis=0)
        for index, head in enumerate(grid.heads):
            row = HeadLooks(
                language=language,
                head=head,
                sentences_percent=100 * float(share[index].mean()),
                low_percent=100 * float(low[index]),
                high_percent=100 * float(high[index]),
                tokens_percent=100 * float(tokens[index]),
                sentences=len(seen.groups),
            )
            rows.append(row)
    return Records(
        "Share of sentences in which every token's largest attention weight goes to a separator, "
        "by head and language",
        tuple(rows),
    )


def kind_records(
    found: Mapping[str, Looks],
    kinds: Mapping[str, Bools],
    *,
    aligned: bool,
    rng: np.random.Generator,
) -> Records[KindLooks]:
    """Every language (and all of them) and kind of head: mean share, and its difference from all heads.

    aligned: whether groups of the same name are the same texts in every language and so are drawn together;
    otherwise each language is resampled separately, with equal weight.
    """
    each = list(found.values())
    pooled = Looks(
        np.concatenate([seen.tokens for seen in each]),
        tuple(label for s in each for label in s.groups),
    )
    sets = {language: [seen] for language, seen in found.items()}
    if len(found) > 1:
        sets["all languages"] = [pooled] if aligned else each
    rows = []
    for language, strata in sets.items():
        for kind, chosen in kinds.items():
            numbers = _against_all(strata, chosen, rng)
            rows.append(KindLooks(language, kind, int(chosen.sum()), *numbers))
    return Records(
        "The same, as the mean over kinds of heads, and minus the mean over all heads",
        tuple(rows),
        ("Difference: to the mean over all heads, on the same sentences.",),
    )


def _against_all(
    strata: Sequence[Looks], chosen: Bools, rng: np.random.Generator
) -> tuple[float | None, ...]:
    """Mean over strata of the chosen heads' share and its difference from all heads, with intervals, in %; and p.

    Fewer where there is no other head, and none where there is no head.
    """
    if not chosen.any():
        return ()
    part = [(seen.whole[:, chosen].mean(axis=1)[None], seen.groups) for seen in strata]
    low, high, _ = stratified_bootstrap(part, rng, made_up=(1.0, 0.0))
    tokens = np.mean([seen.tokens[:, chosen].mean() for seen in strata])
    shares = [100 * float(v) for v in (_mean(part), low[0], high[0], tokens)]
    if chosen.all():
        return tuple(shares)
    gain = [
        (own - seen.whole.mean(axis=1), seen.groups)
        for (own, _), seen in zip(part, strata, strict=True)
    ]
    below, above, p = stratified_bootstrap(gain, rng)
    return (*shares, *(100 * float(v) for v in (_mean(gain), below[0], above[0])), float(p[0]))


def _mean(strata: Sequence[tuple[Floats, tuple[str, ...]]]) -> float:
    return float(np.mean([values.mean() for values, _ in strata]))
