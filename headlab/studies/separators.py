"""Section 5 of Held & Yang (EACL 2023): how often a head attends to nothing but separators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import torch

from headlab.core import (
    Bools,
    Floats,
    HeadGrid,
    OptionValue,
    Progress,
    Tick,
    integer_in,
    run_in_parallel,
    text_in,
)
from headlab.evaluation import Batch, Evaluator
from headlab.hooks import Model, excluded_ids, query_and_key_tokens, sum_weights
from headlab.stats import group_bootstrap, stratified_bootstrap
from headlab.studies.heads import RAW, claimed_signs, in_every_top
from headlab.studies.result import Records
from headlab.studies.separators_result import HeadLooks, KindLooks, SeparatorsResult
from headlab.studies.table import SaySentence

if TYPE_CHECKING:
    from headlab.studies.run import Ask, Pieces


SEPARATOR = "separator"
KINDS = ("language-agnostic", "language-specific", "all")


@dataclass(frozen=True)
class SeparatorLooks:
    """Where heads attend, sentence by sentence.

    Attributes:
        tokens: float [sentence, head]: share of a sentence's tokens whose largest weight is on a
            separator.
        groups: Label [sentence]; sentences with the same label are resampled together.
    """

    tokens: Floats
    groups: tuple[str, ...]

    @property
    def is_whole_sentence(self) -> Bools:
        """Whether every token's largest weight is on a separator, bool [sentence, head]."""
        return np.asarray(self.tokens == 1)


def measure_looks(
    evaluator: Evaluator, tokens: str = SEPARATOR, on_batch: Callable[[int], None] = lambda _: None
) -> SeparatorLooks:
    """Where each head's tokens attend most, for all examples of an evaluator, in one pass.

    A token counts if its largest weight on a separator exceeds that on anything else (a tie does
    not count); padding neither attends nor is attended to.

    Args:
        evaluator: Of the examples.
        tokens: What counts as a separator, as in `excluded_ids`.
        on_batch: Called after every batch with the number of sentences done; may raise to stop.
    """
    model = evaluator.model
    ids = torch.tensor(excluded_ids(model.tokenizer, tokens), device=model.device)
    token_shares = np.zeros((len(evaluator.examples), model.grid.size))
    sentences_done = 0
    layer, head = model.grid.flat.T

    def shares_of_batch(batch: Batch, tick: Tick) -> Floats:
        tick()
        return shares_of(model, batch, ids)[:, layer, head]

    batches = evaluator.batches(np.arange(len(evaluator.examples)))
    for batch, batch_shares in run_in_parallel(
        batches, shares_of_batch, model=model, tick=evaluator.tick
    ):
        token_shares[batch.rows] = batch_shares
        sentences_done += len(batch.rows)
        evaluator.forwards += len(batch.rows)
        on_batch(sentences_done)
    return SeparatorLooks(token_shares, tuple(example.cluster for example in evaluator.examples))


def shares_of(model: Model, batch: Batch, ids: torch.Tensor) -> Floats:
    """Share of a sentence's tokens that attend most to one of `ids`.

    float [row, layer, head].
    """
    shares = np.zeros((len(batch.rows), model.grid.layers, model.grid.width))

    def add(row: int, weights: torch.Tensor) -> None:
        """Fill in one row of the grid.

        Args:
            weights: [sentence, head, token, token attended to].
        """
        (_, is_looking), (target_ids, is_target) = query_and_key_tokens(
            batch.inputs, model.grid.rows[row]
        )
        is_target = is_target[:, None, None, :]
        is_separator = torch.isin(target_ids, ids)[:, None, None, :] & is_target
        is_other = ~is_separator & is_target
        largest_on_separator = weights.masked_fill(~is_separator, -1).amax(dim=-1)
        largest_elsewhere = weights.masked_fill(~is_other, -1).amax(dim=-1)
        counts = (largest_on_separator > largest_elsewhere) & is_looking[:, None, :]
        counted_tokens = counts.sum(dim=-1, dtype=torch.float64)
        shares_of_row = counted_tokens / is_looking.sum(dim=-1)[:, None]
        shares[:, row, : shares_of_row.shape[1]] = shares_of_row.cpu().numpy()

    sum_weights(model, batch.inputs, add)
    return shares


def run(
    pieces: Pieces, options: Mapping[str, OptionValue], report: SaySentence
) -> SeparatorsResult:
    """Share of sentences in which every token attends to a separator.

    It is given per head and per kind of head, by language.

    Args:
        options: method, method_options (of the scores that define the kinds of heads), tokens, top.
    """
    top = integer_in(options, "top")
    tokens = text_in(options, "tokens")
    looks_by_language = {}
    for language in pieces.languages:
        report(f"where heads look in {language}")
        looks_by_language[language] = _looks_in(pieces, language, tokens)
    kinds = _kinds(pieces, options, top)
    grid = pieces.model.grid
    rng = np.random.default_rng(pieces.seed)
    # In this order, since both draw from one stream of random numbers.
    heads = head_records(looks_by_language, grid, rng)
    kind_rows = kind_records(looks_by_language, kinds, are_aligned=pieces.task.aligned, rng=rng)
    sizes = ", ".join(f"{name}: {int(kinds[name].sum())}" for name in KINDS)
    notes = (
        f"Looked at: {_tokens_text(pieces.model, tokens)}. Padding neither attends nor is "
        "attended to; all other tokens attend.",
        f"Heads by kind: {sizes}. Language-agnostic: among the {top} highest of every language; "
        "language-specific: helpful in one language and harmful in another by intervals that "
        "exclude 0 (not adjusted for many heads).",
        "Intervals: 95 %, by resampling groups of sentences, with a sentence added that counts "
        "and one that does not.",
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


def _looks_in(pieces: Pieces, language: str, tokens: str) -> SeparatorLooks:
    """Where heads look in a language's dev examples.

    The passes are reported as those of the pieces.
    """
    evaluator = pieces.evaluator(language, "dev")
    forwards_before = pieces.forwards
    evaluator.forget_states()  # frees memory for the attention weights

    def on_batch(sentences_done: int) -> None:
        pieces.forwards = forwards_before + sentences_done
        note = f"{sentences_done} of {len(evaluator.examples)} sentences of {language}"
        pieces.report(Progress(pieces.forwards, pieces.forwards, note))

    evaluator.tick = pieces.tick
    return measure_looks(evaluator, tokens, on_batch)


def _tokens_text(model: Model, tokens: str) -> str:
    """Which tokens count, in words."""
    names = model.tokenizer.convert_ids_to_tokens(excluded_ids(model.tokenizer, tokens))
    quoted_names = " ".join(f"`{name}`" for name in names)
    return f"{tokens} tokens ({quoted_names or 'the tokenizer has none'})"


def _kinds(pieces: Pieces, options: Mapping[str, OptionValue], top: int) -> dict[str, Bools]:
    """{kind of KINDS: its heads, bool [head]}."""
    scores = {language: pieces.study_scores(language, options) for language in pieces.languages}
    agnostic = in_every_top(scores, top)
    signs_by_claim = claimed_signs(scores)
    specific = signs_by_claim[RAW].vary if signs_by_claim else np.zeros_like(agnostic)
    all_heads = np.ones(pieces.model.grid.size, bool)
    return dict(zip(KINDS, (agnostic, specific, all_heads), strict=True))


def head_records(
    looks_by_language: Mapping[str, SeparatorLooks], grid: HeadGrid, rng: np.random.Generator
) -> Records[HeadLooks]:
    """Every language and head: share of sentences with its interval, and mean share of tokens."""
    rows = []
    for language, looks in looks_by_language.items():
        share = looks.is_whole_sentence.astype(np.float64).T
        low, high, _ = group_bootstrap(share, looks.groups, rng, pseudo_values=(1.0, 0.0))
        tokens = looks.tokens.mean(axis=0)
        for index, head in enumerate(grid.heads):
            row = HeadLooks(
                language=language,
                head=head,
                sentences_percent=100 * float(share[index].mean()),
                low_percent=100 * float(low[index]),
                high_percent=100 * float(high[index]),
                tokens_percent=100 * float(tokens[index]),
                sentences=len(looks.groups),
            )
            rows.append(row)
    return Records(
        "Share of sentences in which every token's largest attention weight goes to a separator, "
        "by head and language",
        tuple(rows),
    )


def kind_records(
    looks_by_language: Mapping[str, SeparatorLooks],
    kinds: Mapping[str, Bools],
    *,
    are_aligned: bool,
    rng: np.random.Generator,
) -> Records[KindLooks]:
    """Every language, and all of them, by kind of head: mean share, and difference from all heads.

    Args:
        looks_by_language: Where heads look.
        kinds: The heads of each kind, bool [head].
        are_aligned: Whether groups of the same name are the same texts in every language and so are
            drawn together; otherwise each language is resampled separately, with equal weight.
        rng: Of the bootstrap.
    """
    all_looks = list(looks_by_language.values())
    pooled_looks = SeparatorLooks(
        np.concatenate([looks.tokens for looks in all_looks]),
        tuple(chain.from_iterable(looks.groups for looks in all_looks)),
    )
    strata_by_language = {language: [looks] for language, looks in looks_by_language.items()}
    if len(looks_by_language) > 1:
        strata_by_language["all languages"] = [pooled_looks] if are_aligned else all_looks
    rows = []
    for language, strata in strata_by_language.items():
        for kind, heads_of_kind in kinds.items():
            numbers = _figures_of_kind(strata, heads_of_kind, rng)
            rows.append(KindLooks(language, kind, int(heads_of_kind.sum()), *numbers))
    return Records(
        "The same, as the mean over kinds of heads, and minus the mean over all heads",
        tuple(rows),
        ("Difference: to the mean over all heads, on the same sentences.",),
    )


def _figures_of_kind(
    strata: Sequence[SeparatorLooks], heads_of_kind: Bools, rng: np.random.Generator
) -> tuple[float | None, ...]:
    """The figures of `KindLooks` from the sentences on, for a kind of heads, as means over strata.

    Fewer where there is no other head, and none where there is no head.
    """
    if not heads_of_kind.any():
        return ()
    kind_strata = [
        (looks.is_whole_sentence[:, heads_of_kind].mean(axis=1)[None], looks.groups)
        for looks in strata
    ]
    low, high, _ = stratified_bootstrap(kind_strata, rng, pseudo_values=(1.0, 0.0))
    tokens = np.mean([looks.tokens[:, heads_of_kind].mean() for looks in strata])
    share = _mean_of_strata(kind_strata)
    percents = [100 * float(value) for value in (share, low[0], high[0], tokens)]
    if heads_of_kind.all():
        return tuple(percents)
    difference_strata = [
        (kind_shares - looks.is_whole_sentence.mean(axis=1), looks.groups)
        for (kind_shares, _), looks in zip(kind_strata, strata, strict=True)
    ]
    low, high, p = stratified_bootstrap(difference_strata, rng)
    difference = _mean_of_strata(difference_strata)
    points = [100 * float(value) for value in (difference, low[0], high[0])]
    return (*percents, *points, float(p[0]))


def _mean_of_strata(strata: Sequence[tuple[Floats, tuple[str, ...]]]) -> float:
    """The mean over strata of the mean of their values."""
    return float(np.mean([values.mean() for values, _ in strata]))
