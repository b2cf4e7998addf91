"""Masks and scores in a model repository of the Hugging Face hub.

A model repository, as adapters have: a mask is put on a base model like one, and only cards of
models name their `base_model`, by which whoever looks at the model finds what there is for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headlab.core import (
    CHOOSE_HUB_CACHE,
    HeadlabError,
    first_line,
    is_disk_error,
    require_known_home,
    unwritable_error,
)
from headlab.sharing.layout import require_size

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN to a token that may write, and run it again"
# What the hub answers to a commit on a state that is not the newest any more.
CONFLICTS = (409, 412)


@dataclass(frozen=True)
class HubRepository:
    """A model repository of the hub.

    Attributes:
        name: Like owner/name.
        revision: Branch, tag or commit; None for the main branch.
        is_public: Whether a repository that is made is public; one that exists stays as it is.
    """

    name: str
    revision: str | None = None
    is_public: bool = False

    @property
    def word(self) -> str:
        """What a command calls it."""
        return self.name

    @property
    def kind(self) -> str:
        """What it is."""
        return "repository"

    @property
    def word_for_others(self) -> str:
        """What a command of somebody else calls it."""
        return self.name

    @property
    def address(self) -> str:
        """Its URL."""
        from huggingface_hub.constants import ENDPOINT

        return f"{ENDPOINT}/{self.name}"

    @property
    def state(self) -> str | None:
        """The commit that is read; None if there is no such repository."""
        return None if self._info is None else self._info.sha

    @property
    def exists(self) -> bool:
        """Whether there is such a repository, and this revision of it, that the user may read."""
        return self._info is not None

    def names(self) -> Iterator[str]:
        """Paths of its files; none is fetched."""
        for file in (self._info.siblings or []) if self._info is not None else []:
            yield file.rfilename

    def read(self, name: str) -> bytes:
        """A file, of the commit that was listed.

        Args:
            name: Its path in the repository.

        Raises:
            HeadlabError: It is missing, too large, or cannot be fetched.
        """
        from huggingface_hub import HfApi
        from huggingface_hub.constants import HF_HUB_CACHE

        require_known_home(HF_HUB_CACHE, CHOOSE_HUB_CACHE)
        with hub_errors_explained(self.name):
            for file in HfApi().get_paths_info(self.name, [name], revision=self.state):
                require_size(name, getattr(file, "size", 0), self.name)
            path = Path(HfApi().hf_hub_download(self.name, name, revision=self.state))
            require_size(name, path.stat().st_size, self.name)
            return path.read_bytes()

    def check_may_write(self) -> None:
        """Raise HeadlabError unless there is a token to write with; nothing is sent."""
        from huggingface_hub import get_token

        if not get_token():
            raise HeadlabError(
                f"you are not logged in to the hub, so nothing was sent to {self.name}; {LOG_IN}",
                code="hub.not_logged_in",
            )

    def write(self, files: Mapping[str, bytes], message: str) -> None:
        """Write files in one commit, onto the state that was read.

        A repository that is missing is made.

        Args:
            files: By their paths.
            message: Of the commit.

        Raises:
            HeadlabError: The user is not logged in or may not write, the repository has changed
                meanwhile, or the hub cannot be reached.
        """
        from huggingface_hub import CommitOperationAdd, HfApi

        self.check_may_write()
        operations = [CommitOperationAdd(name, data) for name, data in files.items()]
        with hub_errors_explained(self.name):
            if not self.exists:
                HfApi().create_repo(self.name, private=not self.is_public, exist_ok=True)
            HfApi().create_commit(
                self.name,
                operations,
                commit_message=message,
                revision=self.revision,
                parent_commit=self.state,
            )

    @cached_property
    def _info(self) -> Any:
        """What the hub says of the repository: its commit and its files; None if there is none."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        with hub_errors_explained(self.name):
            try:
                return HfApi().model_info(self.name, revision=self.revision)
            except RepositoryNotFoundError as error:
                if _status_of(error) == 401 and _has_token():
                    raise  # a token that the hub does not know
                return None


def _has_token() -> bool:
    from huggingface_hub import get_token

    return bool(get_token())


def _status_of(error: BaseException) -> int | None:
    """The HTTP status of an error of the hub; None if it has none."""
    return getattr(getattr(error, "response", None), "status_code", None)


@contextmanager
def hub_errors_explained(name: str) -> Iterator[None]:
    """Raise what the hub's client raises in the block as a HeadlabError.

    Args:
        name: Of the repository.

    Raises:
        HeadlabError: Anything failed in the block.
    """
    from huggingface_hub.constants import HF_HUB_CACHE

    try:
        yield
    except HeadlabError:
        raise
    except Exception as error:  # the hub's client has a client of its own, and that another one
        if is_disk_error(error):
            raise unwritable_error(Path(HF_HUB_CACHE), error, CHOOSE_HUB_CACHE) from error
        raise _explained(name, error) from error


def _explained(name: str, error: Exception) -> HeadlabError:
    """A sentence for an error of the hub's client."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
        RevisionNotFoundError,
    )

    status = _status_of(error)
    reason = first_line(error)
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return HeadlabError(
            f"the hub does not accept your login for {name}; {LOG_IN}", code="hub.not_logged_in"
        )
    if isinstance(error, RevisionNotFoundError):
        return HeadlabError(
            f"{name} has no such revision on the hub; check --revision, or leave it out",
            code="hub.revision_unknown",
        )
    if isinstance(error, EntryNotFoundError):
        return HeadlabError(
            f"a file of {name} is gone from the hub ({reason}); run the command again",
            code="hub.file_gone",
        )
    if status == 403:
        return HeadlabError(
            f"your token may not write to {name}, or the hub does not let you ({reason}); use a "
            "token with write access, or a repository of your own",
            code="hub.forbidden",
        )
    if status in CONFLICTS:
        return HeadlabError(
            f"{name} has changed on the hub meanwhile, and nothing was written over; push again",
            code="hub.changed_meanwhile",
        )
    if isinstance(error, HfHubHTTPError | HFValidationError):
        return HeadlabError(
            f"the hub refuses this for {name} ({reason}); check the repository's name, your token "
            "and what is sent",
            code="hub.refused",
        )
    return HeadlabError(
        f"the hub cannot be reached for {name} ({type(error).__name__}); check the network and "
        "HF_HUB_OFFLINE, or use a folder, like ./masks",
        code="hub.unreachable",
    )
