"""Roles of the heads left at each size when heads are removed, lowest score first.

As in Voita et al. 2019, figure 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headlab.core import Bools, Cell, HeadGrid, HeadlabError, Json, Report, Table, is_same_model
from headlab.masks import removal_order
from headlab.results import HeadScores, kept_heads_without
from headlab.roles import KINDS, NAME, judged_rows, kind_of
from headlab.stats import ExpectedOverlap, expected_overlap

NO_ROLE = "none of these"
COLUMNS = (
    "heads left",
    "role",
    "heads",
    "of",
    "kept, %",
    "by chance",
    "chance, low",
    "chance, high",
)
FORMATS = ("d", "", "d", "d", ".0f", ".1f", "d", "d")


def remaining(report: Report, scores: HeadScores, sizes: Sequence[int]) -> Table:
    """One row per size and role: how many heads with the role are left, and how many by chance.

    Args:
        report: Of roles.
        scores: Used to order the heads, as in `headlab.prune_curve`.
        sizes: Counts of heads left.

    Raises:
        HeadlabError: The report is another, the scores are of another model, or a size is out of
            range.
    """
    _check(report, scores, sizes)
    size = scores.grid.size
    role_heads = heads_by_role(report, scores.grid)
    order = removal_order(scores.values)
    rows: list[tuple[Cell, ...]] = []
    for kept_count in sizes:
        kept_heads = kept_heads_without(order[: size - kept_count], size)
        for role_count in role_counts(role_heads, kept_heads, np.ones(size, bool)):
            rows.append((kept_count, *role_count.cells))
    return Table(
        "roles-remaining",
        f"Roles of the heads that remain when they leave by {scores.method}, lowest score first",
        COLUMNS,
        FORMATS,
        tuple(rows),
        (
            "heads: with the role among those left; of: in the whole model. A head may have "
            "several roles. by chance: what random orders leave, with the range that holds at "
            "least 95 % of them, separately for each row.",
        ),
    )


class RoleCount(NamedTuple):
    """How many heads with a role are kept.

    Attributes:
        role: Its kind.
        kept_heads: Removable heads with the role that are kept.
        removable_heads: Removable heads with the role.
        chance: How many random orders would keep.
    """

    role: str
    kept_heads: int
    removable_heads: int
    chance: ExpectedOverlap

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of a row of `remaining`, from the role on."""
        return (
            self.role,
            self.kept_heads,
            self.removable_heads,
            100 * self.kept_heads / self.removable_heads,
            *self.chance,
        )


def role_counts(having: Mapping[str, Bools], kept: Bools, free: Bools) -> Iterator[RoleCount]:
    """How many heads are kept of each role that a free head has.

    Args:
        having: {role: heads that have it, bool [head]}.
        kept: Heads kept, bool [head].
        free: Heads that can be removed at all, such as those with a gate, bool [head]; the others
            are always kept, so the counts and the chance level ignore them.
    """
    for role, heads in having.items():
        removable_heads = heads & free
        if removable_heads.any():
            removable_count = int(removable_heads.sum())
            chance = expected_overlap(int(free.sum()), removable_count, int((kept & free).sum()))
            yield RoleCount(role, int((removable_heads & kept).sum()), removable_count, chance)


def heads_by_role(report: Report, grid: HeadGrid) -> Mapping[str, Bools]:
    """The heads of each role that some head has; last, the heads without a role.

    Returns:
        {kind of role: heads that have it, bool [head]}.
    """
    is_judged = np.zeros(grid.size, bool)
    role_heads = {kind: np.zeros(grid.size, bool) for kind in KINDS}
    indices = {head: index for index, head in enumerate(grid.heads)}
    for head, role, has in judged_rows(report.table(NAME)):
        if head not in indices:
            raise HeadlabError(
                f"the roles are of head {head}; the model has {grid}", code="roles.head_unknown"
            )
        is_judged[indices[head]] = True
        role_heads.setdefault(kind_of(role), np.zeros(grid.size, bool))[indices[head]] |= has
    role_heads[NO_ROLE] = is_judged & ~np.any(list(role_heads.values()), axis=0)
    return {role: heads for role, heads in role_heads.items() if heads.any()}


def check_same_model(report: Report, spec: Mapping[str, Json], what: str) -> None:
    """Check that a report is of roles, and of the same model as a spec.

    Args:
        report: That is checked.
        spec: Of something else.
        what: What the spec is of.

    Raises:
        HeadlabError: It is not.
    """
    if report.name != NAME:
        raise HeadlabError(
            f"this needs a report of roles, but was given one of {report.name}; make one with "
            "`headlab roles`",
            code="report.not_roles",
        )
    roles_model = _model_of(report.spec)
    other_model = _model_of(spec)
    roles_fingerprint = roles_model.get("fingerprint")
    other_fingerprint = other_model.get("fingerprint")
    if not is_same_model(roles_fingerprint, other_fingerprint):
        raise HeadlabError(
            f"the roles are of {roles_model.get('name')} (fingerprint "
            f"{str(roles_fingerprint)[:12]}) and the {what} of {other_model.get('name')} "
            f"({str(other_fingerprint)[:12]}); give those of one model",
            code="roles.other_model",
        )


def _model_of(spec: Mapping[str, Json]) -> Mapping[str, Json]:
    model = spec.get("model")
    if isinstance(model, Mapping):
        return model
    return {}


def _check(report: Report, scores: HeadScores, sizes: Sequence[int]) -> None:
    check_same_model(report, scores.spec, "scores")
    bad_sizes = [kept_count for kept_count in sizes if not 0 <= kept_count <= scores.grid.size]
    if bad_sizes or not sizes:
        bad_size = bad_sizes[0] if bad_sizes else "none"
        raise HeadlabError(
            f"asked for the roles of {bad_size} heads left; give numbers from 0 to "
            f"{scores.grid.size}",
            code="roles.sizes_out_of_range",
        )
