"""`headlab push|pull`: masks and scores to and from a folder or the hub, with a card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headlab.cli.output import AsJson, CacheRoot, Device, open_store, print_json
from headlab.core import HeadlabError, comma_list
from headlab.masks import as_safe_line
from headlab.sharing import Pulled, place_of
from headlab.sharing.layout import SharedFiles, SharedPlace

if TYPE_CHECKING:
    from headlab.sharing.pull import FittingModel

MAX_LISTED = 50  # masks, and scores; --json has all
PLACE = "folder (./masks, /data/masks) or hub repository (owner/name)"


def push(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE_OR_RUN...",
            help="mask files; keys of stored scores or their beginnings; folders of scores",
        ),
    ],
    target: Annotated[str, typer.Option("--to", metavar="TARGET", help=PLACE)],
    license: Annotated[
        str,
        typer.Option(
            "--license",
            help="licence for the card, like apache-2.0; default: the card's own, or none",
        ),
    ] = "",
    public: Annotated[
        bool,
        typer.Option(
            "--public", help="make a new hub repository public; private by default, old ones stay"
        ),
    ] = False,
    cache: CacheRoot = None,
    json: AsJson = False,
) -> None:
    """Send masks and stored scores to a folder or the hub, with a card.

    The card says what they are and where they are from. What is there already stays, unless it has
    the same name.
    """
    from headlab.sharing import push as push_files
    from headlab.sharing.hub import HubRepository

    place: SharedPlace = place_of(target)
    if isinstance(place, HubRepository):
        place = replace(place, is_public=public)
    elif public:
        raise HeadlabError(
            "--public is of a repository of the hub; leave it out for a folder",
            code="share.public_folder",
        )
    pushed = push_files(runs, place, open_store(cache), license=license)
    for note in pushed.notes:
        typer.echo(f"headlab: note: {note}", err=True)
    if json:
        print_json(
            {
                "target": place.word,
                "kind": place.kind,
                "address": place.address,
                "sent": list(pushed.sent),
                "masks": list(pushed.files.masks),
                "scores": list(pushed.files.scores),
                "notes": list(pushed.notes),
            }
        )
        return
    for name in pushed.sent:
        typer.echo(f"  {name}")
    typer.echo(f"{place.address} holds {contents_words(pushed.files)}")


def pull(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=PLACE)],
    mask: Annotated[
        str | None, typer.Option("--mask", help="name of the mask; default: the only one")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="file for the mask")] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            "--scores",
            metavar="KEY",
            help="key of scores to put into the cache, or its beginning, or all; repeatable",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="refuse what is not of this model, by its fingerprint"),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="branch, tag or commit of the hub repository"),
    ] = None,
    cache: CacheRoot = None,
    device: Device = None,
    json: AsJson = False,
) -> None:
    """Take a mask or scores from a folder or the hub, after checking them.

    Lists what is there unless --mask, --out, --scores or --cache says what to take; --cache without
    --scores takes all scores. Nothing of what is taken is run.
    """
    from headlab.sharing import pull as pull_files
    from headlab.sharing.pull import ALL, chosen_keys, chosen_mask, files_of

    place = place_of(source, revision=revision)
    files = files_of(place)
    takes_mask = mask is not None or out is not None
    words = scores or ([ALL] if cache is not None else [])
    if not takes_mask and not words:
        if model is not None:
            raise HeadlabError(
                "--model checks what is taken; say what with --mask, --out or --scores, or leave "
                "it out for a list",
                code="share.nothing_to_check",
            )
        print_listing(place, files, as_json=json)
        return
    name = chosen_mask(files, mask, place) if takes_mask else None
    if name is not None and out is None:
        raise HeadlabError(
            f"say with --out which file mask {name} is written to, such as --out {name}.json",
            code="share.out_unnamed",
        )
    keys = chosen_keys(files, words, place)
    store = open_store(cache) if keys else None
    pulled = pull_files(
        place,
        mask_name=name,
        out=out,
        keys=keys,
        store=store,
        model=None if model is None else _fitting_model(model, device),
    )
    if json:
        taken_mask = None
        if pulled.mask is not None:
            taken_mask = {
                "name": name,
                "out": str(out),
                "model": pulled.mask.name or None,
                "fingerprint": pulled.mask.fingerprint,
                "checked_with": model,
            }
        print_json(
            {
                "source": place.word,
                "commit": place.state,
                "mask": taken_mask,
                "scores": list(pulled.taken),
                "scores_known": list(pulled.known),
                "cache": None if store is None else str(store.root),
            }
        )
        return
    if pulled.mask is not None:
        typer.echo(f"{out}: {mask_words(pulled, model)}")
    if store is not None:
        typer.echo(
            f"{store.root}: {len(pulled.taken):,} taken, {len(pulled.known):,} were there already"
        )


def _fitting_model(name: str, device: str | None) -> FittingModel:
    """The model that what is taken must be of, loaded for its grid and fingerprint."""
    import headlab
    from headlab.sharing.pull import FittingModel

    loaded = headlab.load(name, device=device)
    return FittingModel(name, loaded.grid, loaded.fingerprint)


def mask_words(pulled: Pulled, model: str | None) -> str:
    """What to know of a mask that was taken.

    Args:
        pulled: What was taken.
        model: That it was checked with; None if it was not.
    """
    mask = pulled.mask
    assert mask is not None, "a mask was taken"
    heads = f"{len(mask.removed):,} of {mask.grid.size:,} heads off"
    owner = as_safe_line(mask.name or "an unnamed model")
    if mask.fingerprint is None:
        return f"{heads}, of {owner}; it records no fingerprint, so whether it fits is not known"
    made_for = f"{owner} (fingerprint {as_safe_line(mask.fingerprint[:12])})"
    if model is None:
        return f"{heads}; it fits only {made_for}"
    return f"{heads}; checked: it is of {made_for}"


def print_listing(place: SharedPlace, files: SharedFiles, *, as_json: bool) -> None:
    """Print what a place holds, by names alone.

    Args:
        place: The place.
        files: What it holds.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json(
            {
                "source": place.word,
                "kind": place.kind,
                "commit": place.state,
                "masks": list(files.masks),
                "scores": list(files.scores),
            }
        )
        return
    typer.echo(f"{place.word} holds {contents_words(files)}")
    if files.masks:
        typer.echo(f"masks: {comma_list(files.masks, MAX_LISTED)}")
        typer.echo(
            f"  headlab pull {place.word} --mask {files.masks[0]} --out {files.masks[0]}.json"
        )
    if files.scores:
        keys = (key[:12] for key in files.scores)
        typer.echo(f"scores: {comma_list(keys, MAX_LISTED)}")
        typer.echo(f"  headlab pull {place.word} --scores all")


def contents_words(files: SharedFiles) -> str:
    """What a place holds, in numbers.

    Args:
        files: What it holds.
    """
    masks = len(files.masks)
    scores = len(files.scores)
    words = f"{masks:,} mask{'s' * (masks != 1)}"
    return f"{words} and {scores:,} set{'s' * (scores != 1)} of scores"
