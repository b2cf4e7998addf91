"""Results on disk: one folder a run, named by what the run depends on, written whole or not at all."""

from headlab.store.answers_file import ANSWERS, named
from headlab.store.arrays import MAX_ARRAY_BYTES, read_arrays
from headlab.store.curve_file import CurveResult, pack_answers, unpack_answers
from headlab.store.folder import FORMAT
from headlab.store.gates_file import GATES, GatesResult
from headlab.store.report_file import REPORT, ReportResult
from headlab.store.runs import (
    ADAPTERS,
    CurveListing,
    GatesListing,
    Listing,
    Record,
    ReportListing,
    Run,
    Store,
    default_root,
    matches,
)
from headlab.store.score_file import Result, read_result

__all__ = [
    "ADAPTERS",
    "ANSWERS",
    "FORMAT",
    "GATES",
    "MAX_ARRAY_BYTES",
    "REPORT",
    "CurveListing",
    "CurveResult",
    "GatesListing",
    "GatesResult",
    "Listing",
    "Record",
    "ReportListing",
    "ReportResult",
    "Result",
    "Run",
    "Store",
    "default_root",
    "matches",
    "named",
    "pack_answers",
    "read_arrays",
    "read_result",
    "unpack_answers",
]
