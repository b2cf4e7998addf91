"""Masks and scores through a hub that answers from memory; the real one is never asked."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from support.expected_errors import raises
from support.shared_masks import COMMIT, SHARED_GRID, kept_scores, mask_file

from headlab.results import Store
from headlab.sharing import place_of, pull, push
from headlab.sharing.hub import HubRepository
from headlab.sharing.pull import FittingModel, files_of


def response(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "http://host/"))


@dataclass
class FakeHub:
    """One repository that may not be there yet.

    Attributes:
        files: Its files; None before it was made.
        commits: Messages, paths and parents of the commits that were made.
        made: The arguments of the repositories that were made.
        fetched: Paths of the files that were fetched.
        failure: What the next call of each of these methods raises.
    """

    folder: Path
    files: dict[str, bytes] | None = None
    commits: list[tuple[str, tuple[str, ...], str | None]] = field(default_factory=list)
    made: list[dict[str, Any]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    failure: dict[str, Exception] = field(default_factory=dict)

    def fail_if_asked(self, method: str) -> None:
        if method in self.failure:
            raise self.failure[method]

    def model_info(self, name: str, revision: str | None = None) -> SimpleNamespace:
        self.fail_if_asked("model_info")
        assert name == "owner/masks"
        if self.files is None:
            raise RepositoryNotFoundError("no such repository", response=response(404))
        siblings = [SimpleNamespace(rfilename=path) for path in self.files]
        return SimpleNamespace(sha=COMMIT, siblings=siblings)

    def get_paths_info(
        self, name: str, paths: Sequence[str], revision: str | None
    ) -> list[SimpleNamespace]:
        assert (revision, self.files is None) == (COMMIT, False)
        return [SimpleNamespace(size=len((self.files or {})[path])) for path in paths]

    def hf_hub_download(self, name: str, path: str, revision: str | None) -> str:
        self.fail_if_asked("hf_hub_download")
        assert revision == COMMIT
        self.fetched.append(path)
        file = self.folder / path.replace("/", "-")
        file.write_bytes((self.files or {})[path])
        return str(file)

    def create_repo(self, name: str, **options: Any) -> None:
        self.fail_if_asked("create_repo")
        self.made.append({"name": name, **options})
        self.files = {".gitattributes": b""}

    def create_commit(
        self,
        name: str,
        operations: Sequence[Any],
        *,
        commit_message: str,
        revision: str | None,
        parent_commit: str | None,
    ) -> None:
        self.fail_if_asked("create_commit")
        assert (name, revision) == ("owner/masks", None)
        paths = tuple(operation.path_in_repo for operation in operations)
        self.commits.append((commit_message, paths, parent_commit))
        assert self.files is not None
        self.files |= {
            operation.path_in_repo: operation.path_or_fileobj for operation in operations
        }


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    folder = tmp_path / "hub-cache"
    folder.mkdir()
    fake = FakeHub(folder)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: fake)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_token")
    return fake


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def repository(revision: str | None = None) -> HubRepository:
    """The repository, as a command sees it anew."""
    place = place_of("owner/masks", revision=revision)
    assert isinstance(place, HubRepository)
    return place


def test_a_push_is_one_commit_and_comes_back_to_the_byte(
    tmp_path: Path, hub: FakeHub, store: Store
) -> None:
    key = kept_scores(store).spec.key
    path = mask_file(tmp_path)
    push([str(path), key], repository(), store, license="mit")
    sent = ("masks/m.json", f"scores/{key}/result.npz", f"scores/{key}/spec.json", "README.md")
    assert hub.commits == [(f"headlab push: mask m, scores {key[:12]}", sent, None)]
    assert hub.made == [{"name": "owner/masks", "private": True, "exist_ok": True}]
    assert b"headlab pull owner/masks --mask m" in (hub.files or {})["README.md"]
    out = tmp_path / "out.json"
    new_store = Store(tmp_path / "new")
    pull(repository(), mask_name="m", out=out, keys=[key], store=new_store)
    assert out.read_bytes() == path.read_bytes()
    assert new_store.scan().results[0].key == key


def test_a_second_push_stands_on_the_commit_that_was_read(
    tmp_path: Path, hub: FakeHub, store: Store
) -> None:
    push([str(mask_file(tmp_path, "a"))], repository(), store, license="mit")
    (hub.files or {})["model.safetensors"] = b"weights"
    push([str(mask_file(tmp_path, "b"))], repository(), store)
    assert hub.commits[1] == ("headlab push: mask b", ("masks/b.json", "README.md"), COMMIT)
    assert len(hub.made) == 1
    card = (hub.files or {})["README.md"].decode()
    assert "## Mask a" in card
    assert 'license: "mit"' in card
    assert (hub.files or {})["model.safetensors"] == b"weights"


def test_a_mask_of_another_model_may_be_in_another_commit(
    tmp_path: Path, hub: FakeHub, store: Store
) -> None:
    push([str(mask_file(tmp_path))], repository(), store)
    model = FittingModel("other-model", SHARED_GRID, "2" * 64)
    with raises("share.other_model", "owner/tiny-bert", "other-model", "--revision"):
        pull(repository(), mask_name="m", out=tmp_path / "out.json", model=model)
    assert not (tmp_path / "out.json").exists()


def test_a_listing_fetches_nothing(tmp_path: Path, hub: FakeHub) -> None:
    hub.files = {f"masks/m{number}.json": b"" for number in range(5000)}
    assert len(files_of(repository()).masks) == 5000
    assert hub.fetched == []


def test_the_card_of_a_model_is_not_written_over(
    tmp_path: Path, hub: FakeHub, store: Store
) -> None:
    hub.files = {"README.md": b"---\nlicense: mit\n---\n# A model of mine"}
    with raises("share.card_of_others", "owner/masks"):
        push([str(mask_file(tmp_path))], repository(), store)
    assert hub.commits == []


def test_without_a_login_nothing_is_sent_or_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: FakeHub, store: Store
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    hub.failure["model_info"] = AssertionError("the hub was asked")
    with raises("hub.not_logged_in", "hf auth login", "HF_TOKEN", "owner/masks"):
        push([str(mask_file(tmp_path))], repository(), store)
    assert (hub.commits, hub.made) == ([], [])


@pytest.mark.parametrize(
    ("method", "error", "code", "value"),
    [
        (
            "model_info",
            RepositoryNotFoundError("x", response=response(401)),
            "hub.not_logged_in",
            "hf auth login",
        ),
        ("model_info", OfflineModeIsEnabled("x"), "hub.unreachable", "HF_HUB_OFFLINE"),
        ("model_info", httpx.ConnectError("x"), "hub.unreachable", "ConnectError"),
        ("model_info", HfHubHTTPError("busy", response=response(503)), "hub.refused", "busy"),
        ("create_repo", HfHubHTTPError("no", response=response(403)), "hub.forbidden", "write"),
        ("create_commit", LocalTokenNotFoundError("x"), "hub.not_logged_in", "HF_TOKEN"),
        (
            "create_commit",
            HfHubHTTPError("x", response=response(412)),
            "hub.changed_meanwhile",
            "push again",
        ),
        ("create_commit", OSError(errno.ENOSPC, "full"), "file.no_space", "space"),
    ],
)
def test_every_failure_of_a_push_is_a_sentence(
    tmp_path: Path,
    hub: FakeHub,
    store: Store,
    method: str,
    error: Exception,
    code: str,
    value: str,
) -> None:
    hub.failure[method] = error
    with raises(code, value):
        push([str(mask_file(tmp_path))], repository(), store)
    assert hub.commits == []


def test_every_failure_of_a_pull_is_a_sentence(tmp_path: Path, hub: FakeHub) -> None:
    with raises("share.place_missing", "owner/masks", "login"):
        files_of(repository())
    hub.files = {"masks/m.json": b"x" * (5 << 20)}
    with raises("share.file_too_large", "masks/m.json"):
        pull(repository(), mask_name="m", out=tmp_path / "out.json")
    assert hub.fetched == []
    hub.files = {"masks/m.json": b"{"}
    hub.failure["hf_hub_download"] = EntryNotFoundError("gone")
    with raises("hub.file_gone", "gone"):
        pull(repository(), mask_name="m", out=tmp_path / "out.json")
    hub.failure.clear()
    with raises("json.invalid", "masks/m.json of owner/masks"):
        pull(repository(), mask_name="m", out=tmp_path / "out.json")
    hub.failure["model_info"] = RevisionNotFoundError("x", response=response(404))
    with raises("hub.revision_unknown", "--revision"):
        files_of(repository("nowhere"))
