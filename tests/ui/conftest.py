"""The app's pages on a cache folder of their own, with a worker that is only a list of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner
from support.app_pages import app_on
from support.fake_client import FakeClient, FakeWorker


@pytest.fixture(scope="session", autouse=True)
def scanned_once() -> Iterator[None]:
    """Each page run here makes a streamlit of its own, which would look for components in all installed packages."""
    with pytest.MonkeyPatch.context() as patch:
        found = manifest_scanner.scan_component_manifests()
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: found)
        yield


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The app's cache folder; empty, where a file has no other."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def client() -> FakeClient:
    """What the worker answers."""
    return FakeClient()


@pytest.fixture
def worker(cache: Path, client: FakeClient) -> Iterator[FakeClient]:
    """The app, with its worker."""
    with app_on(cache, lambda: FakeWorker(client)):
        yield client
