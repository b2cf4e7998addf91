"""Which front the Prune page shows: asked for by another page or by its link, or fitting its form best."""

from __future__ import annotations

from dataclasses import dataclass, field

from headlab.dashboard.names import SHORT_KEY
from headlab.dashboard.widgets import PageState


@dataclass
class ShownFront(PageState):
    """The choice of a front in one session, beside the list to choose from.

    Attributes:
        requested: Start of the key of the front that another page opens; empty once it is shown.
        linked: Starts of the keys that the page itself has put in its link.
        nearest: Full key of the front that fitted the form best when the page was last drawn.
    """

    key = "_front"
    requested: str = ""
    linked: set[str] = field(default_factory=set)
    nearest: str = ""


def show_front_next(key: str) -> None:
    """Make the Prune page show this front next, whatever fits its form.

    Args:
        key: Full key of the front's report.
    """
    ShownFront.of_session().requested = key[:SHORT_KEY]
