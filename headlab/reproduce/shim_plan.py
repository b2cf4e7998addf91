"""What `headlab reproduce shim` trains and prunes, at which sizes, and what each model is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headlab.training.lm.options import TRANSFORMER, LmGateOptions, LmOptions

START, AS_LONG = "all-attention", "all-attention, trained on"
TECHNIQUES = ("warm_up", "open_start", "scale")
ALL_ON = "all three"


@dataclass(frozen=True)
class Plan:
    """Sizes of a reproduction.

    words: of the training text (None: all).  weights: λ, one pruned model each.  shares: ordinary Transformers, each
    with so large a share of heads and feed-forward width.  ablated: λ at which the techniques are left out in turn.
    rounds: of timing.
    """

    words: int | None
    model: LmOptions
    gates: LmGateOptions
    weights: tuple[float, ...]
    shares: tuple[float, ...]
    ablated: float
    rounds: int

    @property
    def as_long(self) -> int:
        """Steps of a pruned model in all, which those that it is compared with are trained for, too."""
        return self.model.steps + self.gates.steps + self.gates.tune_steps


REAL = Plan(
    None,
    LmOptions(vocabulary=5000, width=192, persistent=256, block=64, batch=32, steps=2500),
    LmGateOptions(steps=600, tune_steps=300, batch=32, block=64),
    (0.003, 0.01, 0.03), (1.0, 0.5), 0.01, 15,
)  # fmt: skip
SMOKE = Plan(
    40_000,
    LmOptions(vocabulary=1000, layers=3, heads=4, width=64, persistent=64, block=64, batch=8, steps=200,
              learning_rate=3e-3),
    LmGateOptions(steps=100, tune_steps=40, batch=8, block=64, gate_rate=0.1, model_rate=1e-3, tune_rate=1e-3),
    (0.01, 0.03, 0.06), (1.0, 0.5), 0.03, 7,
)  # fmt: skip


def pruned_name(weight: float) -> str:
    """How a pruned model is called."""
    return f"pruned, λ = {weight:g}"


def plain_name(share: float) -> str:
    """How an ordinary Transformer is called."""
    return TRANSFORMER if share == 1 else f"{TRANSFORMER}, {share:.0%} of heads and width"


def settings(plan: Plan) -> dict[str, LmGateOptions]:
    """What is pruned how, by name: each λ with all techniques, and one λ with each of them, and all, left out."""
    made = {pruned_name(w): replace(plan.gates, weight=w) for w in plan.weights}
    whole = replace(plan.gates, weight=plan.ablated)
    made[pruned_name(plan.ablated)] = whole
    for name in TECHNIQUES:
        made[f"without {name}"] = replace(whole, **{name: False})
    made["without all three"] = replace(whole, **dict.fromkeys(TECHNIQUES, False))
    return made


def trained(plan: Plan) -> dict[str, LmOptions]:
    """What is trained from nothing, by name; the first is what is pruned."""
    longer = replace(plan.model, steps=plan.as_long)
    made = {START: plan.model, AS_LONG: longer}
    for share in plan.shares:
        heads, inner = (max(1, round(n * share)) for n in (plan.model.heads, plan.model.persistent))
        size = plan.model.width // plan.model.heads
        made[plain_name(share)] = replace(longer, kind=TRANSFORMER, heads=heads, persistent=inner, head_size=size)
    return made


def shown(plan: Plan) -> list[str]:
    """Models of the main table, in its order; the first is what speeds are compared with."""
    return [START, AS_LONG, *map(pruned_name, plan.weights), *map(plain_name, plan.shares)]
