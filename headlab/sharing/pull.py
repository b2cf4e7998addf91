"""Masks and scores taken from a folder or a repository, each checked before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headlab.core import (
    CHOOSE_CACHE,
    HeadGrid,
    HeadlabError,
    RunSpec,
    comma_list,
    is_file,
    is_same_model,
    write_atomic,
)
from headlab.core.files import require_replaceable
from headlab.masks import Mask, as_safe_line, load_mask, mask_from_text
from headlab.results import HeadScores, Store, StoredRun
from headlab.results.store.codecs import read_result
from headlab.sharing.layout import (
    RESULT,
    SCORE_FILES,
    SharedFiles,
    SharedPlace,
    mask_path,
    score_path,
)

SHORTEST_KEY = 4  # characters of a key that name scores, as in reports
ALL = "all"


@dataclass(frozen=True)
class FittingModel:
    """The model that what is taken must be of.

    Attributes:
        name: As the user named it.
        grid: Its heads.
        fingerprint: Of its files; None for a model without one.
    """

    name: str
    grid: HeadGrid
    fingerprint: str | None


@dataclass(frozen=True)
class Pulled:
    """What was taken.

    Attributes:
        mask: The mask; None if only scores were taken.
        taken: Keys of scores that are in the cache now.
        known: Keys of scores that were there before, and stayed as they were.
    """

    mask: Mask | None
    taken: tuple[str, ...]
    known: tuple[str, ...]


def files_of(place: SharedPlace) -> SharedFiles:
    """What a place holds, by names alone.

    Args:
        place: A folder or a repository.

    Raises:
        HeadlabError: There is no such place, or it holds neither masks nor scores.
    """
    if not place.exists:
        raise HeadlabError(
            f"there is no {place.kind} {place.word} that you may read; check its name, and your "
            "login if it is private",
            code="share.place_missing",
        )
    files = SharedFiles.named(place.names())
    if not files.masks and not files.scores:
        raise HeadlabError(
            f"{place.word} holds no masks (masks/NAME.json) and no scores (scores/KEY); name a "
            "place that headlab push wrote",
            code="share.nothing_there",
        )
    return files


def chosen_mask(files: SharedFiles, name: str | None, place: SharedPlace) -> str:
    """The name of the mask that is meant.

    Args:
        files: What the place holds.
        name: As the user gave it; None for the only one.
        place: The place.

    Raises:
        HeadlabError: There is none of this name, or there are several and none is named.
    """
    if name is None:
        if len(files.masks) == 1:
            return files.masks[0]
        raise HeadlabError(
            f"{place.word} holds {len(files.masks)} masks ({comma_list(files.masks, 10)}); say "
            "which one with --mask",
            code="share.mask_unnamed",
        )
    if name not in files.masks:
        there = comma_list(files.masks, 10) or "none"
        raise HeadlabError(
            f"{place.word} holds no mask {as_safe_line(name)!r}; its masks are: {there}",
            code="share.mask_unknown",
        )
    return name


def chosen_keys(files: SharedFiles, words: Sequence[str], place: SharedPlace) -> list[str]:
    """The keys of the scores that are meant.

    Args:
        files: What the place holds.
        words: Keys or their beginnings, or `all`.
        place: The place.

    Raises:
        HeadlabError: A word is the beginning of no key, or of several, or too short.
    """
    if words and not files.scores:
        raise HeadlabError(
            f"{place.word} holds no scores; leave out --scores and --cache",
            code="share.scores_unknown",
        )
    keys: dict[str, None] = {}
    for word in words:
        if word == ALL:
            keys |= dict.fromkeys(files.scores)
            continue
        found = [key for key in files.scores if key.startswith(word)]
        if len(word) < SHORTEST_KEY or len(found) != 1:
            there = comma_list((key[:12] for key in files.scores), 10)
            raise HeadlabError(
                f"{as_safe_line(word)!r} is the beginning of {len(found)} keys of scores in "
                f"{place.word} ({there}); give {SHORTEST_KEY} characters or more of one, or {ALL}",
                code="share.scores_unknown",
            )
        keys[found[0]] = None
    return list(keys)


def pull(
    place: SharedPlace,
    *,
    mask_name: str | None = None,
    out: Path | None = None,
    keys: Sequence[str] = (),
    store: Store | None = None,
    model: FittingModel | None = None,
) -> Pulled:
    """Take a mask, scores, or both. Nothing is written before all of it has been checked.

    Args:
        place: Where from.
        mask_name: Of the mask; None for none.
        out: File for the mask.
        keys: Of the scores.
        store: Where scores go.
        model: That all of it must be of; None to leave that to its use.

    Raises:
        HeadlabError: Something is missing, damaged or of another model, or cannot be written.
    """
    data = b""
    mask = None
    if mask_name is not None and out is not None:
        check_mask_file(out)
        path = mask_path(mask_name)
        data = place.read(path)
        mask = mask_from_text(data, f"{path} of {place.word}")
        if model is not None:
            require_fit(mask, mask_name, model, place)
    known = [key for key in keys if store is not None and _is_stored(store, key)]
    with TemporaryDirectory(prefix="headlab-") as staging:
        specs = {
            key: _checked_scores(place, key, Path(staging), model)
            for key in keys
            if key not in known
        }
        if mask is not None and out is not None:
            write_atomic(out, data)
        for key, spec in specs.items():
            assert store is not None, "scores are asked for with a store"
            run = StoredRun(store.root / key, spec)
            run.make_folder()
            write_atomic(
                run.folder / RESULT, (Path(staging) / key / RESULT).read_bytes(), CHOOSE_CACHE
            )
    return Pulled(mask, tuple(specs), tuple(known))


def check_mask_file(out: Path) -> None:
    """Raise HeadlabError early for a file that is no mask and would be lost, or cannot be written.

    Args:
        out: The file.
    """
    require_replaceable(out)
    if not is_file(out):
        return
    try:
        load_mask(out)
    except HeadlabError as error:
        raise HeadlabError(
            f"{out} exists and is no mask, so it is not replaced; name another file with --out",
            code="output.not_mask",
        ) from error


def require_fit(mask: Mask, name: str, model: FittingModel, place: SharedPlace) -> None:
    """Raise HeadlabError for a mask of another model.

    Args:
        mask: The mask.
        name: Its name there.
        model: That it must be of.
        place: Where it is from.
    """
    made_for = mask.fingerprint
    if made_for and model.fingerprint and not is_same_model(made_for, model.fingerprint):
        owner = as_safe_line(mask.name or "an unnamed model")
        or_other_commit = ""
        if place.state is not None:
            or_other_commit = ", or name a commit with a mask of this model by --revision"
        raise HeadlabError(
            f"mask {name} of {place.word} was made for {owner} (fingerprint "
            f"{as_safe_line(made_for[:12])}), not for {model.name} ({model.fingerprint[:12]}), and "
            "heads of one model say nothing about another's; nothing was written. Leave --model "
            f"out and use it by headlab evaluate --model {owner}{or_other_commit}",
            code="share.other_model",
        )
    mask.check(model.grid, model.fingerprint)


def _is_stored(store: Store, key: str) -> bool:
    """Whether a store has these scores already."""
    return (store.folder_of(key) / RESULT).exists()


def _checked_scores(
    place: SharedPlace, key: str, staging: Path, model: FittingModel | None
) -> RunSpec:
    """Fetch scores into a folder, and give their spec once the store's own checks have passed.

    Raises:
        HeadlabError: They are damaged, not what their key says, or of another model.
    """
    folder = staging / key
    for file in SCORE_FILES:
        write_atomic(folder / file, place.read(score_path(key, file)))
    try:
        scores = read_result(folder, HeadScores).record
    except HeadlabError as error:
        reason = error.__cause__ or error  # without the advice that is for a cache
        raise HeadlabError(
            f"scores {key[:12]} of {place.word} are not taken, and nothing was written: {reason}; "
            "ask for them to be pushed again from the cache that has them",
            code="share.scores_invalid",
        ) from error
    made_for = scores.spec.model.fingerprint
    if model is not None and model.fingerprint and not is_same_model(made_for, model.fingerprint):
        owner = as_safe_line(scores.spec.model.name)
        raise HeadlabError(
            f"scores {key[:12]} of {place.word} are of {owner} (fingerprint "
            f"{as_safe_line(made_for[:12])}), not of {model.name} ({model.fingerprint[:12]}); "
            "nothing was written. Leave --model out, or name the keys of this model's scores",
            code="share.other_model",
        )
    return scores.spec
