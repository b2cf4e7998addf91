"""What `headlab reproduce shim` trains and prunes, at which sizes, and what each model is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headlab.errors import HeadlabError
from headlab.files import read_json
from headlab.models.adapter import TRAINING
from headlab.models.allattention.sizes import parameters
from headlab.records import Floats
from headlab.reproduce.made import as_written
from headlab.training.lm.judged import read_sums
from headlab.training.lm.options import TRANSFORMER, LmGateOptions, LmOptions
from headlab.training.lm.train import sized

START, AS_LONG = "all-attention", "all-attention, trained on"
TECHNIQUES = ("warm_up", "open_start", "scale")
ALL_ON = "all three"
SPLIT = "test"


@dataclass(frozen=True)
class Plan:
    """Sizes of a reproduction.

    words: of the training text (None: all).  held_words: of the texts that models are judged on.  weights: λ, one
    pruned model each.  ablated: λ at which the techniques are left out in turn.  rounds: of timing.
    """

    words: int | None
    held_words: int | None
    model: LmOptions
    gates: LmGateOptions
    weights: tuple[float, ...]
    ablated: float
    rounds: int

    @property
    def as_long(self) -> int:
        """Steps of a pruned model in all, which those that it is compared with are trained for, too."""
        return self.model.steps + self.gates.steps + self.gates.tune_steps


REAL = Plan(
    None, 40_000,
    LmOptions(vocabulary=5000, width=192, persistent=256, block=64, batch=16, steps=1000),
    LmGateOptions(steps=250, tune_steps=100, batch=16, block=64),
    (0.003, 0.01, 0.03), 0.01, 15,
)  # fmt: skip
SMOKE = Plan(
    40_000, 5_000,
    LmOptions(vocabulary=1000, layers=3, heads=4, width=64, persistent=64, block=64, batch=8, steps=200,
              learning_rate=3e-3),
    LmGateOptions(steps=100, tune_steps=40, batch=8, block=64, gate_rate=0.1, model_rate=1e-3, tune_rate=1e-3),
    (0.01, 0.03, 0.06), 0.03, 7,
)  # fmt: skip


@dataclass
class Found:
    """What was made. data: hash of the text.  folders: of the models by name; None where every gate closed."""

    plan: Plan
    data: str
    folders: dict[str, Path | None] = field(default_factory=dict)

    def record(self, name: str) -> Mapping[str, Any]:
        """How a model was made; empty where there is none."""
        folder = self.folders[name]
        if folder is None:
            return {}
        with as_written(folder):
            found: dict[str, Any] = read_json(folder / TRAINING)
            _check_record(found)
        return found

    def sums(self, name: str) -> Floats:
        """A model's sums over passages of the test text. Raises HeadlabError if they are of another text."""
        folder = self.folders[name]
        found = None if folder is None else read_sums(folder, self.data, self.plan.model.block)
        if found is None:
            raise HeadlabError(
                f"{folder} was judged on another text; delete it and run the command again", code="reproduce.other_text"
            )
        return found[SPLIT]

    @property
    def seconds(self) -> float:
        """What training and judging all models took, whenever that was."""
        return sum(seconds(self.record(name)) for name in self._each())

    @property
    def windows(self) -> int:
        """Windows of text that all models were trained on."""
        options = [self.record(name) for name in self._each()]
        steps = [sum(part.get(n, 0) for n in ("steps", "tune_steps")) * part["batch"]
                 for part in (one.get("pruned") or one["options"] for one in options)]  # fmt: skip
        return sum(steps)

    def _each(self) -> list[str]:
        """A name of every model: some have several."""
        return list({folder: name for name, folder in self.folders.items() if folder is not None}.values())


def _check_record(record: Mapping[str, Any]) -> None:
    """Touch all that the tables take of a record, so that what is not there, or no number, is told before."""
    told, sizes = record["perplexity"][SPLIT], record["parameters"]
    numbers = [record["took"]["seconds"], record["took"]["judging"], sizes["whole"], sizes["layers"], told["words"],
               record["data"]["tokens"], record["heads"][0], *record["heads"]]  # fmt: skip
    numbers += [value for name in ("word", "low", "high") if (value := told[name]) is not None]
    options = record.get("pruned") or record["options"]
    numbers += [options["steps"], options["batch"], options.get("tune_steps", 0)]
    if "pruned" in record:
        gates, ratios = record["gates"], record["ratios"]["removed"][SPLIT]
        numbers += [ratios["value"], gates["undecided"], gates["heads"][0], gates["heads"][1], *map(sum, gates["kept"])]
        numbers.append(max(x for x in gates["loss"] if x is not None))
    else:
        numbers.append(options["persistent"])
    for value in numbers:
        float(value)


def seconds(record: Mapping[str, Any]) -> float:
    """What training and judging a model took."""
    return float(record["took"]["seconds"] + record["took"]["judging"])


def pruned_name(weight: float) -> str:
    """How a pruned model is called."""
    return f"pruned, λ = {weight:g}"


def large_name(weight: float) -> str:
    """How the ordinary Transformer that is as large as a pruned model is called."""
    return f"{TRANSFORMER} as large as λ = {weight:g}"


def settings(plan: Plan) -> dict[str, LmGateOptions]:
    """What is pruned how, by name: each λ with all techniques, and one λ with each of them, and all, left out."""
    made = {pruned_name(w): replace(plan.gates, weight=w) for w in plan.weights}
    whole = replace(plan.gates, weight=plan.ablated)
    made[pruned_name(plan.ablated)] = whole
    for name in TECHNIQUES:
        made[f"without {name}"] = replace(whole, **{name: False})
    made["without all three"] = replace(whole, **dict.fromkeys(TECHNIQUES, False))
    return made


def check(plan: Plan) -> None:
    """Raise HeadlabError, before hours are spent, for options that some model of the plan cannot be made with."""
    for options in trained(plan).values():
        options.check()
    for gates in settings(plan).values():
        gates.check()


def trained(plan: Plan) -> dict[str, LmOptions]:
    """What is trained from nothing before anything is pruned, by name; the first is what is pruned."""
    longer = replace(plan.model, steps=plan.as_long)
    return {START: plan.model, AS_LONG: longer, TRANSFORMER: replace(longer, kind=TRANSFORMER)}


def as_large(plan: Plan, layers: int) -> LmOptions:
    """An ordinary Transformer with about so many parameters in its layers: fewer heads and less width alike.

    Fewer layers, too, where there would be nothing left of either.
    """
    whole = trained(plan)[TRANSFORMER]
    share = min(1.0, layers / layer_parameters(whole))
    sizes = [(depth, heads) for depth in range(whole.layers, 0, -1)
             for heads in range(max(1, round(share * whole.heads)), 0, -1)]  # fmt: skip
    for depth, heads in sizes:
        found = replace(whole, layers=depth, heads=heads, head_size=whole.width // whole.heads, persistent=1)
        one, two = (layer_parameters(replace(found, persistent=inner)) for inner in (1, 2))
        inner = 1 + round((layers - one) / (two - one))
        if inner >= 1:
            return replace(found, persistent=inner)
    return found


def layer_parameters(options: LmOptions, heads: list[int] | None = None) -> int:
    """Parameters of the layers of a model of such options, with the heads it says or with these."""
    config = sized(options, vocabulary=2)
    if heads is not None:
        config.heads_per_layer = heads
    return parameters(config).layers


def shown(plan: Plan) -> list[str]:
    """Models of the main table, in its order; the first is what speeds are compared with."""
    return [START, AS_LONG, *map(pruned_name, plan.weights), TRANSFORMER, *map(large_name, plan.weights)]
