"""What `headlab reproduce voita-gates` trains and prunes, and at which sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headlab.reproduce.models import NLI
from headlab.tasks.base import Split
from headlab.training.l0.options import GateOptions
from headlab.training.scratch.options import TranslationOptions

INTENTS, XNLI, TRANSLATION = "intents", "xnli", "translation"
ENCODER, EVERY = "encoder", "all"
MODELS = {INTENTS: "e5-small-intents", XNLI: NLI}


@dataclass(frozen=True)
class Classifier:
    """Gates on the heads of a classifier, beside other choices of as many heads.

    weights: λ, a run each.  gates: how they are learned.  samples: a head, of Shapley values.  randoms: masks of as
    many heads drawn at random.  test: examples that all is reported on (None: all).
    """

    task: str
    weights: tuple[float, ...]
    gates: GateOptions
    samples: int
    randoms: int
    test: int | None

    @property
    def model(self) -> str:
        """Name of the model, which was fine-tuned on English."""
        return MODELS[self.task]


@dataclass(frozen=True)
class Translator:
    """A translation model from nothing, and gates that are trained along with it.

    sentences: of the train split (None: all).  encoder: λ of runs whose gates are on the encoder alone; every: of
    runs with gates on all three stacks.  scratch: λ of `encoder` whose architecture is trained from nothing, too.
    dev, test: sentences (None: all).  roles: sentences that heads' roles are sought in.
    """

    pair: str
    sentences: int | None
    model: TranslationOptions
    gates: GateOptions
    encoder: tuple[float, ...]
    every: tuple[float, ...]
    scratch: tuple[float, ...]
    dev: int
    test: int | None
    roles: int

    @property
    def judged(self) -> dict[Split, int | None]:
        """Sentences of the splits that models are judged on."""
        return {"dev": self.dev, "test": self.test}

    def of(self, pair: str | None, given: bool) -> Translator:
        """The same for another pair (None: its own); given: of a model from elsewhere, which is trained gently."""
        gates = replace(self.gates, model_rate=GateOptions.model_rate) if given else self.gates
        return replace(self, pair=pair or self.pair, gates=gates)

    @property
    def steps(self) -> int:
        """Of all trainings: the base, each run and the base trained on, and those from nothing, of both kinds."""
        alone, on = self.model.steps, self.gates.steps
        return alone + on * (1 + len(self.runs())) + (alone + on) * len(self.scratch)

    def runs(self) -> list[tuple[str, float]]:
        """(series, λ) of every run."""
        return [(ENCODER, w) for w in self.encoder] + [(EVERY, w) for w in self.every]

    def options(self, series: str, weight: float, seed: int) -> GateOptions:
        """Options of one run."""
        return replace(
            self.gates, weight=weight, stacks=ENCODER if series == ENCODER else EVERY, dev_size=self.dev,
            test_size=self.test, seed=seed,
        )  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The parts of a reproduction."""

    classifiers: tuple[Classifier, ...]
    translator: Translator


REAL = Plan(
    (
        Classifier(INTENTS, (0.0003, 0.001, 0.003, 0.01, 0.03), GateOptions(steps=300), 512, 5, None),
        Classifier(
            XNLI, (0.001, 0.003, 0.01, 0.03), GateOptions(steps=250, batch=16, size=4000, dev_size=256), 256, 3, 600,
        ),
    ),
    Translator(
        "en-de", None, TranslationOptions(steps=3000), GateOptions(steps=300, batch=64, trained="all", model_rate=3e-4),
        (0.01, 0.02, 0.03, 0.1), (0.003, 0.01, 0.03), (0.03,), 512, None, 512,
    ),
)  # fmt: skip
SMOKE = Plan(
    (
        Classifier(
            INTENTS, (0.003, 0.03), GateOptions(steps=40, batch=16, size=400, gate_rate=0.3, dev_size=64), 4, 3, 128
        ),
        Classifier(
            XNLI, (0.003, 0.03), GateOptions(steps=12, batch=8, size=300, gate_rate=0.3, dev_size=48), 2, 2, 60
        ),
    ),
    Translator(
        "en-de", 2000,
        TranslationOptions(steps=120, batch=32, vocabulary=1000, width=64, feed_forward=128, encoder_layers=2,
                           decoder_layers=2, encoder_heads=4, decoder_heads=4, warmup=40, dropout=0.1),
        GateOptions(steps=60, batch=32, trained="all", model_rate=5e-4, gate_rate=0.3),
        (0.01, 0.03), (0.01, 0.03), (0.01,), 64, 128, 64,
    ),
)  # fmt: skip
