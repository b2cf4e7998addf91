"""The map of heads by role: the head grid with a colour and a letter a role, and its legend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headlab.plots.heads import POSITIONAL, look_of
from headlab.records import Head
from headlab.ui import presses
from headlab.ui.headgrid import picker
from headlab.ui.roles_read import Found, Roles

MINUS = "\N{MINUS SIGN}"


def role_map(
    roles: Roles, *, key: str, title: str, selected: Head | None, on_click: Callable[[Head], None] | None
) -> None:
    """Draw every head's roles; a click, or Enter on it, calls `on_click(head)` before the page runs."""
    data = picture(roles) | {
        "title": title,
        "clickable": on_click is not None,
        "selected": -1 if selected is None else roles.grid.index(selected),
    }

    presses.draw("rolegrid", key, data | {"key": key}, {key: picker(roles.grid, on_click)})


def picture(roles: Roles) -> dict[str, Any]:
    """What the browser draws: kinds with their colours and counts, and for each head its kinds, mark and tooltip."""
    kinds, heads = list(roles.counts), roles.grid.heads
    looks = {kind: look_of(kind) for kind in kinds}
    return {
        "stacks": [{"name": stack.name, "heads": list(stack.heads)} for stack in roles.grid.stacks],
        "kinds": [{"name": kind, **looks[kind]._asdict(), "heads": roles.counts[kind]} for kind in kinds],
        "roles": [
            [kinds.index(kind) for kind in roles.kinds(head)] if head in roles.measures else None for head in heads
        ],
        "shown": [_mark(roles, head) for head in heads],
        "tips": [tip(roles, head) for head in heads],
        "values": [],
        "marks": [],
        "mode": "map",
        "compact": False,
        "signed": False,
        "off": [],
    }


def _mark(roles: Roles, head: Head) -> str:
    """The clearest role's letter; of a position, the offset itself."""
    own = roles.having(head)
    if not own:
        return ""
    return offset(own[0]) if own[0].kind == POSITIONAL else look_of(own[0].kind).mark


def offset(found: Found) -> str:
    """'−1' for 'position -1'."""
    return found.role.removeprefix("position ").replace("-", MINUS)


def tip(roles: Roles, head: Head) -> str:
    """A head's roles, a line each, with their shares."""
    if head not in roles.measures:
        return "not looked at"
    own = roles.having(head)
    lines = [f"{len(own)} roles"] if len(own) > 1 else []
    return "\n".join([*lines, *(f"{words(row.role)}{_share(row)}" for row in own)]) or "no role"


def words(role: str) -> str:
    """A role as a reader has it."""
    return role.replace("position -", f"position {MINUS}")


def _share(row: Found) -> str:
    share, chance = row.numbers["share, %"], row.numbers["chance, %"]
    if share is None:
        return ""
    return f", {share:.0f} %" + ("" if chance is None else f" ({against(row.role)} {chance:.0f} %)")


def against(role: str) -> str:
    """What a role's share is compared with: of syntax, always looking at the relation's most frequent offset."""
    return "baseline" if ":" in role else "chance"
