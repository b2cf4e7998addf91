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
    """Scan the installed packages for Streamlit components once.

    Every page that runs here makes a Streamlit of its own, which would scan them again.
    """
    with pytest.MonkeyPatch.context() as patch:
        manifests = manifest_scanner.scan_component_manifests()
        patch.setattr(manifest_scanner, "scan_component_manifests", lambda: manifests)
        yield


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The app's cache folder: empty, unless a test file has a fixture of its own."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def client() -> FakeClient:
    """The worker as the pages see it: a list of jobs with made-up answers."""
    return FakeClient()


@pytest.fixture
def worker(cache: Path, client: FakeClient) -> Iterator[FakeClient]:
    """The client of the worker that the app uses in this test."""
    with app_on(cache, lambda: FakeWorker(client)):
        yield client
