"""Made-up reports of interactions, with pairs of each kind."""

from __future__ import annotations

from dataclasses import replace

from headlab.core import Head, Report
from headlab.studies.interactions import InteractionsResult, LossAlone, PairInteraction, SetLoss
from headlab.studies.result import Records
from headlab.studies.table import study
from support.cached_reports import made_report

HEADS = (Head("encoder", 9, 3), Head("encoder", 9, 4), Head("encoder", 10, 6))
UNIT = {"unit": ("points",)}


def made_pairs(
    languages: tuple[str, ...] = ("de", "th"), seed: int = 0, weights: str = "0" * 64
) -> Report:
    """Three heads: two stand in for each other, two need each other, and one pair is open.

    Args:
        languages: Codes of the languages.
        seed: Of the report.
        weights: Fingerprint of the weights that it is said to be of.
    """
    pairs = []
    alone = []
    sets = []
    for number, language in enumerate(languages):
        shift = 0.1 * number
        pairs += [
            PairInteraction(
                language, "9.3", "9.4", -2.5 - shift, -4.0, -1.0 - shift, 0.001, 0.003, 512
            ),
            PairInteraction(language, "9.4", "10.6", 1.25, 0.1, 2.5, 0.04, 0.08, 512),
            PairInteraction(language, "9.3", "10.6", 0.2, -1.0, 1.4, 0.7, 0.7, 512),
        ]
        alone += [LossAlone(language, head, 0.5) for head in HEADS]
        sets.append(SetLoss(language, "9.3, 9.4", 2, 1.0, 3.5 + shift, 3.2))
        sets.append(SetLoss(language, "9.3, 9.4, 10.6", 3, 1.5, 2.55 + shift, 2.75))
    result = InteractionsResult(
        pairs=Records("How each two heads interact.", tuple(pairs), names=UNIT),
        alone=Records("What each head costs alone.", tuple(alone), names=UNIT),
        sets=Records("What sets of heads cost.", tuple(sets), names=UNIT),
        notes=("Made up for a test.",),
    )
    report = made_report("interactions", seed=seed)
    task = {**report.spec["task"], "language": ",".join(languages)}
    task["sizes"] = {"dev": [512] * len(languages), "test": [1000] * len(languages)}
    options = study("interactions").resolve({"heads": "9.3,9.4,10.6"})
    model = {**report.spec["model"], "fingerprint": weights}
    spec = {**report.spec, "task": task, "options": options, "model": model}
    return replace(report, tables=result.tables(), notes=result.notes, spec=spec)
