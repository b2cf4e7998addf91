"""Bringing a model's files from the hub, so that the device's thread never waits for the network."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from headlab.worker.schemas import Refusal

HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
MOST = 4


def bring(model: str) -> None:
    """Have a hub model's files on this machine; nothing for embedded models and folders. Raises HeadlabError."""
    from headlab.models.files import hub_folder

    if HUB_ID.fullmatch(model) and not Path(model).is_dir():
        hub_folder(model, None)


class Fetches:
    """Models on their way, a thread each; one asked for twice comes once. May be asked from any thread."""

    def __init__(self, fetch: Callable[[str], None] = bring) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._coming: dict[str, Future[None]] = {}

    def start(self, model: str) -> Future[None]:
        """Done once the files are there, or with what kept them. Raises Refusal (429) for too many at once."""
        with self._lock:
            coming = self._coming.get(model)
            if coming is None:
                if len(self._coming) >= MOST:
                    raise Refusal(
                        f"{MOST} models are being fetched from the hub; try again when one has come",
                        429,
                        code="worker.fetches_too_many",
                    )
                coming = self._coming[model] = Future()
                coming.set_running_or_notify_cancel()  # one asker who leaves does not cancel it for the others
                # Ends with the process: what has come of a download is kept.
                threading.Thread(target=self._run, args=(model, coming), name="fetch", daemon=True).start()
        return coming

    def _run(self, model: str, coming: Future[None]) -> None:
        try:
            self._fetch(model)
        except Exception as error:  # whoever waits for the model is told
            self._end(model)
            coming.set_exception(error)
        else:
            self._end(model)
            coming.set_result(None)

    def _end(self, model: str) -> None:
        with self._lock:
            del self._coming[model]
