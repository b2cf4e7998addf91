"""Masks and scores sent to a folder or a repository, with the card that says what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headlab.core import (
    HeadlabError,
    JsonRecord,
    comma_list,
    content_key,
    is_file,
    is_folder,
    parse_json,
    reason_of,
)
from headlab.masks import Mask, as_safe_line, load_mask, mask_from_text
from headlab.report.build import find_results
from headlab.results import HeadScores, Store
from headlab.sharing.card import (
    MAX_DESCRIBED,
    CardContent,
    EarlierCard,
    card_text,
    check_license,
    is_path,
)
from headlab.sharing.layout import (
    CARD,
    SCORE_FILES,
    SPEC,
    SharedFiles,
    SharedPlace,
    mask_path,
    require_size,
    score_path,
)


@dataclass(frozen=True)
class Pushed:
    """What was sent.

    Attributes:
        sent: Paths of the files, the card last.
        files: What the place holds now.
        notes: What to know of it, in sentences.
    """

    sent: tuple[str, ...]
    files: SharedFiles
    notes: tuple[str, ...]


def push(words: Sequence[str], place: SharedPlace, store: Store, *, license: str = "") -> Pushed:
    """Send masks and scores, and write the card anew from all that the place then holds.

    Nothing is sent before everything has been read and checked.

    Args:
        words: Mask files; keys of stored scores or their beginnings, or folders of such runs.
        place: Where to.
        store: Where keys are looked up.
        license: Identifier for the card; empty for the one that the card had, or none.

    Raises:
        HeadlabError: A word names nothing that can be shared, the user may not write there, or the
            place has a README.md of its own.
    """
    if license:
        check_license(license)
    files = gathered_files(words, store)
    place.check_may_write()
    before = SharedFiles.named(place.names())
    earlier = _earlier_card(place) if before.has_card else EarlierCard("")
    now = SharedFiles.named(
        [
            *files,
            *map(mask_path, before.masks),
            *(score_path(key, file) for key in before.scores for file in SCORE_FILES),
        ]
    )
    notes: list[str] = []
    content = CardContent(
        place.word_for_others,
        _described_masks(now, files, place, notes),
        _described_scores(now, files, place, notes),
        now.masks[MAX_DESCRIBED:],
        now.scores[MAX_DESCRIBED:],
        license or earlier.license,
    )
    notes += _notes_on_paths(content, files)
    card = card_text(content).encode("utf-8", errors="replace")
    require_size(CARD, len(card), place.word)
    to_send = {**files, CARD: card}
    shared = SharedFiles.named(files)
    what = [
        *(f"mask {name}" for name in shared.masks),
        *(f"scores {key[:12]}" for key in shared.scores),
    ]
    place.write(to_send, f"headlab push: {comma_list(what, 5)}")
    return Pushed(tuple(to_send), now, tuple(notes))


def gathered_files(words: Sequence[str], store: Store) -> dict[str, bytes]:
    """The files to send, as they stand on the disk, each checked as it is when it is used.

    Args:
        words: As in `push`.
        store: Where keys are looked up.

    Raises:
        HeadlabError: A word names nothing that can be shared, or two masks have the same name.
    """
    files: dict[str, bytes] = {}
    for word in words:
        for name, data in _files_named(word, store).items():
            if files.setdefault(name, data) != data:
                raise HeadlabError(
                    f"two of the masks would be {name}; rename one of the files",
                    code="share.name_twice",
                )
    return files


def _files_named(word: str, store: Store) -> dict[str, bytes]:
    """The files that a word names, by their paths in a place."""
    if is_file(word):
        path = Path(word)
        name = mask_path(path.stem)
        load_mask(path)  # refuses what is too large or not a file, before it is read whole
        data = _read(path)
        mask_from_text(data, word)
        return {name: data}
    files = {}
    for item in find_results([word], store):
        if not isinstance(item.record, HeadScores):
            raise HeadlabError(
                f"{as_safe_line(word)} holds neither scores nor a mask, and only these are shared; "
                "make a report of other results: headlab report",
                code="share.kind_unshared",
            )
        folder = Path(word).resolve() if is_folder(word) else store.folder_of(item.key)
        for file in SCORE_FILES:
            files[score_path(item.key, file)] = _read(folder / file)
    return files


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HeadlabError(
            f"cannot read {path} ({reason_of(error)}); check the path", code="file.unreadable"
        ) from error


def _earlier_card(place: SharedPlace) -> EarlierCard:
    """The card that a place has.

    Raises:
        HeadlabError: It is not headlab's, and would be lost.
    """
    card = EarlierCard(place.read(CARD).decode("utf-8", errors="replace"))
    if not card.is_replaceable:
        raise HeadlabError(
            f"{place.word} has a {CARD} that headlab push did not write and that would be lost; "
            "name another folder or repository, or move it away",
            code="share.card_of_others",
        )
    return card


def _described_masks(
    now: SharedFiles, files: Mapping[str, bytes], place: SharedPlace, notes: list[str]
) -> dict[str, Mask]:
    """The masks that the card describes; a note for each that cannot be read."""
    masks = {}
    for name in now.masks[:MAX_DESCRIBED]:
        path = mask_path(name)
        try:
            masks[name] = mask_from_text(files.get(path) or place.read(path), path)
        except HeadlabError as error:
            notes.append(f"the card leaves out what is damaged there: {error}")
    return masks


def _described_scores(
    now: SharedFiles, files: Mapping[str, bytes], place: SharedPlace, notes: list[str]
) -> dict[str, JsonRecord]:
    """The specs of the scores that the card describes; a note for each that cannot be read."""
    specs = {}
    for key in now.scores[:MAX_DESCRIBED]:
        path = score_path(key, SPEC)
        try:
            specs[key] = spec_of(files.get(path) or place.read(path), key, path)
        except HeadlabError as error:
            notes.append(f"the card leaves out what is damaged there: {error}")
    return specs


def spec_of(data: bytes, key: str, source: str) -> JsonRecord:
    """The spec of scores.

    Args:
        data: Its file.
        key: Of the scores.
        source: In messages.

    Raises:
        HeadlabError: It is not the spec of this key.
    """
    spec = parse_json(data, source)
    try:
        has_key = isinstance(spec, dict) and content_key(spec) == key
    except ValueError:  # half of a surrogate pair
        has_key = False
    if not has_key or not all(
        isinstance(spec.get(name), dict) for name in ("model", "task", "method")
    ):
        raise HeadlabError(
            f"{source} is not the spec of these scores; push them again from the cache that has "
            "them",
            code="share.spec_mismatch",
        )
    return dict(spec)


def _notes_on_paths(content: CardContent, files: Mapping[str, bytes]) -> list[str]:
    """A note if something that is sent names its model by a path of this machine."""
    models = [mask.model for name, mask in content.masks.items() if mask_path(name) in files]
    models += [
        model
        for key, spec in content.scores.items()
        if score_path(key, SPEC) in files and isinstance(model := spec["model"], dict)
    ]
    paths = {name for model in models if is_path(name := str(model.get("name") or ""))}
    return [
        f"what is sent names its model by a path of this machine, {as_safe_line(path, 200)}, which "
        "whoever reads it sees; the card has the last part alone"
        for path in sorted(paths)
    ]
