"""What a model loses without the heads of a role, where its answers without them are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headlab.core import Bools, Head, fingerprint_of, part
from headlab.dashboard.frame import known_grid, store_of_folder
from headlab.dashboard.panels.heads.head_actions import mask_without
from headlab.dashboard.panels.stored import StoredRoles
from headlab.masks import Mask, full_mask
from headlab.results import ANSWERS_KIND, default_root
from headlab.roles import Roles

NO_BREAK = "\N{NO-BREAK SPACE}"
SPLITS = ("test", "dev")
"""Whose answers are told, the preferred one first: scores are made on dev."""


@dataclass(frozen=True)
class RoleEffect:
    """The answers of a model with all heads on, and without those of a role.

    Attributes:
        mask: Without these heads and no others.
        task: Name of the task.
        split: Of the examples.
        size: Number of examples.
        right_before: Which answers are right with all heads on, bool [answer].
        right_after: The same without the heads of the role.
    """

    mask: Mask
    task: str
    split: str
    size: int
    right_before: Bools
    right_after: Bools

    @property
    def accuracies_text(self) -> str:
        """Both accuracies, like '86.1 → 0.5 % on test'."""
        before = 100 * self.right_before.mean()
        after = 100 * self.right_after.mean()
        return f"{before:.1f} → {after:.1f}{NO_BREAK}% on {self.split}"


def heads_with(roles: Roles, group: str) -> list[Head]:
    """The heads that have a role of a group, in the model's order."""
    return [head for head in roles.grid.heads if group in roles.groups(head)]


def effect_of_role(report: StoredRoles, group: str, task: str) -> RoleEffect | None:
    """What a task loses without the heads of a role; None where it is not stored, or no head has it.

    Args:
        report: On the roles of the model's heads.
        group: Of roles.
        task: Name of the task.
    """
    spec = report.result.record.spec
    fingerprint = str(fingerprint_of(spec))
    grid = known_grid(fingerprint)
    heads = heads_with(report.roles, group)
    if grid is None or not heads:
        return None
    mask = mask_without(heads, grid, spec, {"role": group, "languages": [report.language]})
    if mask is None:
        return None
    effects = _stored_effects(mask, fingerprint, task)
    return min(effects, key=lambda effect: SPLITS.index(effect.split), default=None)


def _stored_effects(mask: Mask, fingerprint: str, task: str) -> Sequence[RoleEffect]:
    """What is stored of a model and task, with all heads on and under a mask."""
    effects = []
    for run in store_of_folder(default_root()).runs_with_answers(mask.digest):
        spec = run.spec
        is_of_model = (
            spec.kind == ANSWERS_KIND
            and fingerprint_of(spec) == fingerprint
            and part(spec, "model", "dtype") == mask.model.get("dtype")
        )
        if not is_of_model or spec.task.name != task or spec.ablation != "zero":
            continue
        right_before = run.right_answers(full_mask(mask.grid).digest)
        right_after = run.right_answers(mask.digest)
        if right_before is None or right_after is None or spec.task.split not in SPLITS:
            continue
        size = int(spec.task.size or 0)
        effects.append(RoleEffect(mask, task, spec.task.split, size, right_before, right_after))
    return effects
