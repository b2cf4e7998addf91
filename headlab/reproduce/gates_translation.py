"""Gates of a translation model's three stacks: trained, pruned, and the same architecture from nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headlab.bleu import Bleu
from headlab.evaluator import Evaluator
from headlab.gates import Model
from headlab.generation import translated_bleu
from headlab.learned import LearnedGates
from headlab.masks import Mask
from headlab.progress import Progress
from headlab.records import content_key
from headlab.reproduce.gates_plan import ENCODER, Translator
from headlab.reproduce.models import opened
from headlab.roles.sentences import of_task
from headlab.roles.study import study
from headlab.store import ADAPTERS, Store
from headlab.tables import Report
from headlab.tasks.base import Example, Task
from headlab.training.l0.along import FOLDER
from headlab.training.l0.learn import learn_gates
from headlab.training.scratch.options import TranslationOptions
from headlab.training.scratch.translation import train_translation

Say = Callable[[str, Progress], None]
BASE, LONGER = "trained", "trained on"


@dataclass(frozen=True)
class Pruned:
    """One run: its gates, and what the pruned model's translations of the test sentences are worth."""

    series: str
    weight: float
    gates: LearnedGates
    bleu: Bleu


@dataclass
class Work:
    """All that a step needs, and the models that were made so far by name."""

    plan: Translator
    task: Task
    store: Store
    device: str
    seed: int
    say: Say
    folders: dict[str, Path] = field(default_factory=dict)

    @property
    def sentences(self) -> tuple[Example, ...]:
        """What all models are trained on."""
        return self.task.examples(self.plan.pair, "train", self.plan.sentences)

    @property
    def limited(self) -> Task:
        """The task with no more train sentences than the plan has."""
        kept, whole = self.sentences, self.task.read
        return replace(self.task, read=lambda name, split, seed: kept if split == "train" else whole(name, split, seed))

    @property
    def longer(self) -> TranslationOptions:
        """Options of a model that is trained for as many steps as a pruned one in all."""
        return replace(self.plan.model, steps=self.plan.model.steps + self.plan.gates.steps, seed=self.seed)

    def model(self, name: str) -> Model:
        """A model that was made, under a name that does not depend on where it is."""
        return opened(self.folders[name], name, self.device, "float32")


def train(work: Work, name: str, options: TranslationOptions, mask: Mask | None = None) -> Model:
    """A model from nothing, found in the store if it is there; mask: its heads are off from the first step on."""
    examples = work.sentences
    off = [] if mask is None else [list(head) for head in mask.removed]
    made_of = [options.record(), off, [[e.text, e.target] for e in examples], work.device.split(":")[0]]
    out = work.store.root / ADAPTERS / f"mt-{content_key(made_of)[:24]}"
    work.folders[name] = out
    if not (out / "config.json").is_file():
        train_translation(
            examples, pair=work.plan.pair, out=out, options=options, mask=mask, device=work.device,
            progress=lambda step: work.say(f"{name}, loss {step.loss:.3f}", Progress(step.step, step.steps)),
        )  # fmt: skip
    return work.model(name)


def judged(work: Work, model: Model, mask: Mask | None = None) -> Bleu:
    """BLEU of a model's translations of the test sentences, greedy."""
    evaluator = Evaluator(model, work.task, work.plan.pair, "test", work.plan.test, state_bytes=0)
    return translated_bleu(evaluator, mask, seed=work.seed)


def pruned(work: Work, base: Model, series: str, weight: float) -> Pruned:
    """Gates learned from the trained model on, which is trained along; and the pruned model's BLEU."""
    title = f"{series} gates, λ = {weight:g}"
    options = work.plan.options(series, weight, work.seed)
    gates = learn_gates(
        base, work.limited, work.plan.pair, options=options, store=work.store,
        on_progress=lambda step: work.say(title, step.progress),
    )  # fmt: skip
    work.say(f"{title}: translating", Progress(0, 1))
    work.folders[title] = work.store.run(gates.spec).folder / FOLDER
    return Pruned(series, weight, gates, judged(work, work.model(title), Mask(gates.grid, gates.kept)))


@dataclass(frozen=True)
class Translated:
    """What the translation part found.

    base, longer: BLEU of the model that was pruned, and of the same model trained for as many steps as a pruned one.
    scratch: BLEU of the architecture of a run of the encoder series, trained from nothing, by λ.  roles: of the
    base's heads.  parameters: of the base.
    """

    plan: Translator
    base: Bleu
    longer: Bleu
    runs: Sequence[Pruned]
    scratch: Mapping[float, Bleu]
    roles: Report
    parameters: int


def translated(work: Work) -> Translated:
    """Every step of the part; what is in the store is not made again."""
    plan = work.plan
    base = train(work, BASE, replace(plan.model, seed=work.seed))
    longer = train(work, LONGER, work.longer)
    runs = [pruned(work, base, series, weight) for series, weight in plan.runs()]
    scratch = {
        run.weight: judged(work, train(work, f"from nothing, λ = {run.weight:g}", work.longer, run.gates.mask()))
        for run in runs
        if run.series == ENCODER and run.weight in plan.scratch
    }
    sentences = of_task(work.task, plan.pair, "dev", plan.roles)
    roles = study(
        base, sentences, options={"examples": 0}, store=work.store, on_progress=lambda p: work.say("roles", p)
    )
    parameters = sum(p.numel() for p in base.module.parameters())
    return Translated(plan, judged(work, base), judged(work, longer), runs, scratch, roles, parameters)
