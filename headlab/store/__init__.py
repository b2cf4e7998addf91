"""Results on disk: one folder a run, named by what the run depends on, written whole or not at all."""

from headlab.store.arrays import MAX_ARRAY_BYTES, read_arrays
from headlab.store.curve_file import CurveResult, pack_answers, unpack_answers
from headlab.store.folder import FORMAT
from headlab.store.runs import ADAPTERS, CurveListing, Listing, Run, Store, default_root, matches
from headlab.store.score_file import Result, read_result

__all__ = [
    "ADAPTERS",
    "FORMAT",
    "MAX_ARRAY_BYTES",
    "CurveListing",
    "CurveResult",
    "Listing",
    "Result",
    "Run",
    "Store",
    "default_root",
    "matches",
    "pack_answers",
    "read_arrays",
    "read_result",
    "unpack_answers",
]
