"""Fingerprints of one model under several names.

Earlier versions of headlab counted files that are not loaded. A folder with a second file of
weights, such as `consolidated.safetensors` beside `model.safetensors`, had another fingerprint
then.  Masks and results that name it are of the same model, and stay so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headlab.core.json_types import Json, JsonLike, json_at

# {an earlier fingerprint: today's}, of the models met in this process.  It depends on the files
# alone, so that whoever met a model first has said the same of it.
_CURRENT: dict[str, str] = {}


def remember_former_fingerprints(fingerprint: str, former: Iterable[str]) -> None:
    """Know a model by its earlier fingerprints from now on.

    Args:
        fingerprint: Today's fingerprint.
        former: Fingerprints under which earlier versions of headlab recorded the same model.
    """
    for earlier in former:
        if earlier != fingerprint:
            _CURRENT[earlier] = fingerprint


def former_fingerprints(fingerprint: str) -> tuple[str, ...]:
    """The earlier fingerprints of a model, of which `fingerprint` is today's."""
    return tuple(sorted(earlier for earlier, current in _CURRENT.items() if current == fingerprint))


def current_fingerprint(fingerprint: JsonLike) -> JsonLike:
    """Today's fingerprint for an earlier one; any other value, None among them, as it is."""
    if not isinstance(fingerprint, str):
        return fingerprint
    return _CURRENT.get(fingerprint, fingerprint)


def is_same_model(fingerprint: JsonLike, other_fingerprint: JsonLike) -> bool:
    """Whether two fingerprints are of one model.

    A missing one is only that of a model without one.
    """
    return current_fingerprint(fingerprint) == current_fingerprint(other_fingerprint)


def fingerprint_of(spec: Mapping[str, Json]) -> JsonLike:
    """Today's fingerprint of the model that a spec names; None if it names none.

    Args:
        spec: A spec, or anything that names its model as a spec does.
    """
    return current_fingerprint(json_at(spec, "model", "fingerprint"))
