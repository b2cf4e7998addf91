"""Labels of groups of answers that are resampled together."""

from __future__ import annotations


def equal_groups(answers: int, group_size: int = 1) -> tuple[str, ...]:
    """The label of each answer's group, [answer], where neighbours make groups of one size."""
    return tuple(str(answer // group_size) for answer in range(answers))
