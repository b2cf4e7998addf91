"""What every other room stands on: errors, records, tables, options, files and keys.

No torch here, but for what shares a device's work out, which is imported when it is first used.
"""

from typing import TYPE_CHECKING

from headlab.core.ablations import ABLATION_CHOICES as ABLATION_CHOICES
from headlab.core.ablations import ABLATIONS as ABLATIONS
from headlab.core.ablations import COUNTERFACTUAL as COUNTERFACTUAL
from headlab.core.ablations import MOST_DONOR_EXAMPLES as MOST_DONOR_EXAMPLES
from headlab.core.ablations import OF_OTHER_TEXTS as OF_OTHER_TEXTS
from headlab.core.ablations import REPLACEMENTS as REPLACEMENTS
from headlab.core.ablations import RESAMPLE as RESAMPLE
from headlab.core.ablations import STREAMING as STREAMING
from headlab.core.ablations import USUAL_SIZES as USUAL_SIZES
from headlab.core.ablations import StreamingSizes as StreamingSizes
from headlab.core.ablations import ablation_title as ablation_title
from headlab.core.ablations import drawn_donors as drawn_donors
from headlab.core.ablations import is_ablation as is_ablation
from headlab.core.ablations import is_beyond_weights as is_beyond_weights
from headlab.core.ablations import is_of_other_texts as is_of_other_texts
from headlab.core.ablations import is_streaming as is_streaming
from headlab.core.ablations import read_ablation as read_ablation
from headlab.core.ablations import replacement_of as replacement_of
from headlab.core.ablations import require_own_output as require_own_output
from headlab.core.ablations import streaming_sizes as streaming_sizes
from headlab.core.equality import ComparedByContent as ComparedByContent
from headlab.core.errors import MEMORY_FULL_WORDS as MEMORY_FULL_WORDS
from headlab.core.errors import HeadlabError as HeadlabError
from headlab.core.errors import UngatedPassWarning as UngatedPassWarning
from headlab.core.errors import as_sentence as as_sentence
from headlab.core.errors import comma_list as comma_list
from headlab.core.errors import errors_as_headlab_errors as errors_as_headlab_errors
from headlab.core.errors import first_line as first_line
from headlab.core.errors import is_out_of_memory as is_out_of_memory
from headlab.core.errors import require_flag as require_flag
from headlab.core.errors import require_seed as require_seed
from headlab.core.errors import require_type as require_type
from headlab.core.extensions import KeysWhere as KeysWhere
from headlab.core.extensions import Registry as Registry
from headlab.core.extensions import import_implementation as import_implementation
from headlab.core.extensions import wrong_key_text as wrong_key_text
from headlab.core.extensions import wrong_kind_text as wrong_kind_text
from headlab.core.extras import missing_package as missing_package
from headlab.core.extras import needs_extra as needs_extra
from headlab.core.files import APP_DEVICE_VARIABLE as APP_DEVICE_VARIABLE
from headlab.core.files import APP_MODEL_VARIABLE as APP_MODEL_VARIABLE
from headlab.core.files import APP_TASK_VARIABLE as APP_TASK_VARIABLE
from headlab.core.files import CACHE_VARIABLE as CACHE_VARIABLE
from headlab.core.files import CHOOSE_CACHE as CHOOSE_CACHE
from headlab.core.files import CHOOSE_HUB_CACHE as CHOOSE_HUB_CACHE
from headlab.core.files import CHOOSE_MODEL_CACHE as CHOOSE_MODEL_CACHE
from headlab.core.files import CHOOSE_WRITABLE_FOLDER as CHOOSE_WRITABLE_FOLDER
from headlab.core.files import HUB_ID as HUB_ID
from headlab.core.files import MAX_JSON_BYTES as MAX_JSON_BYTES
from headlab.core.files import MAX_SENT_BYTES as MAX_SENT_BYTES
from headlab.core.files import STALE_SECONDS as STALE_SECONDS
from headlab.core.files import TEMPORARY_NAME as TEMPORARY_NAME
from headlab.core.files import append_line as append_line
from headlab.core.files import as_path as as_path
from headlab.core.files import default_root as default_root
from headlab.core.files import demo_results as demo_results
from headlab.core.files import file_mode as file_mode
from headlab.core.files import is_abandoned as is_abandoned
from headlab.core.files import is_disk_error as is_disk_error
from headlab.core.files import is_file as is_file
from headlab.core.files import is_folder as is_folder
from headlab.core.files import is_text as is_text
from headlab.core.files import json_with_rows as json_with_rows
from headlab.core.files import lock_descriptor as lock_descriptor
from headlab.core.files import make_folder as make_folder
from headlab.core.files import parse_json as parse_json
from headlab.core.files import read_json as read_json
from headlab.core.files import reason_of as reason_of
from headlab.core.files import require_known_home as require_known_home
from headlab.core.files import require_replaceable as require_replaceable
from headlab.core.files import set_mode as set_mode
from headlab.core.files import sync_file as sync_file
from headlab.core.files import sync_folder as sync_folder
from headlab.core.files import unwritable_error as unwritable_error
from headlab.core.files import write_atomic as write_atomic
from headlab.core.files import write_json as write_json
from headlab.core.fingerprints import current_fingerprint as current_fingerprint
from headlab.core.fingerprints import fingerprint_of as fingerprint_of
from headlab.core.fingerprints import former_fingerprints as former_fingerprints
from headlab.core.fingerprints import is_same_model as is_same_model
from headlab.core.fingerprints import remember_former_fingerprints as remember_former_fingerprints
from headlab.core.json_types import Json as Json
from headlab.core.json_types import JsonLike as JsonLike
from headlab.core.json_types import JsonObject as JsonObject
from headlab.core.json_types import JsonRecord as JsonRecord
from headlab.core.json_types import as_list as as_list
from headlab.core.json_types import as_number as as_number
from headlab.core.json_types import as_object as as_object
from headlab.core.json_types import as_plain_object as as_plain_object
from headlab.core.json_types import as_text as as_text
from headlab.core.json_types import json_at as json_at
from headlab.core.lazy_names import names_on_demand as names_on_demand
from headlab.core.locks import Flock as Flock
from headlab.core.locks import LockedFile as LockedFile
from headlab.core.locks import flock as flock
from headlab.core.locks import holder_of as holder_of
from headlab.core.locks import lock_file as lock_file
from headlab.core.locks import marker_of as marker_of
from headlab.core.options import Option as Option
from headlab.core.options import Options as Options
from headlab.core.options import OptionValue as OptionValue
from headlab.core.options import as_command_text as as_command_text
from headlab.core.options import integer_in as integer_in
from headlab.core.options import number_in as number_in
from headlab.core.options import option as option
from headlab.core.options import optional_integer_in as optional_integer_in
from headlab.core.options import optional_number_in as optional_number_in
from headlab.core.options import options_as_words as options_as_words
from headlab.core.options import options_in as options_in
from headlab.core.options import parse_options as parse_options
from headlab.core.options import require_known_options as require_known_options
from headlab.core.options import resolve_options as resolve_options
from headlab.core.options import text_in as text_in
from headlab.core.player_cells import Cells as Cells
from headlab.core.player_cells import PlayerCells as PlayerCells
from headlab.core.players import ATTENTION as ATTENTION
from headlab.core.players import FEED_FORWARD as FEED_FORWARD
from headlab.core.players import KINDS_OF_HEADS as KINDS_OF_HEADS
from headlab.core.players import KV_GROUPS as KV_GROUPS
from headlab.core.players import LAYERS as LAYERS
from headlab.core.players import NEURONS as NEURONS
from headlab.core.players import PLAYERS_WORDS as PLAYERS_WORDS
from headlab.core.players import Players as Players
from headlab.core.players import kind_title as kind_title
from headlab.core.players import noun_of as noun_of
from headlab.core.players import player_in_words as player_in_words
from headlab.core.players import player_name as player_name
from headlab.core.players import players_of as players_of
from headlab.core.players import players_phrase as players_phrase
from headlab.core.players import players_title as players_title
from headlab.core.players import read_players as read_players
from headlab.core.processors import THREADS_VARIABLE as THREADS_VARIABLE
from headlab.core.processors import allowed_processors as allowed_processors
from headlab.core.processors import limit_threads as limit_threads
from headlab.core.processors import quotas as quotas
from headlab.core.progress_bars import ReportProgress as ReportProgress
from headlab.core.progress_bars import shown_progress as shown_progress
from headlab.core.records import BEYOND_LIMIT as BEYOND_LIMIT
from headlab.core.records import CHANGE_KINDS as CHANGE_KINDS
from headlab.core.records import HEAD_COLUMNS as HEAD_COLUMNS
from headlab.core.records import HEAD_FORMATS as HEAD_FORMATS
from headlab.core.records import HEADS as HEADS
from headlab.core.records import MIXED_NOUNS as MIXED_NOUNS
from headlab.core.records import PLAYER_KINDS as PLAYER_KINDS
from headlab.core.records import STACKS as STACKS
from headlab.core.records import WITHOUT_TOKEN as WITHOUT_TOKEN
from headlab.core.records import Bools as Bools
from headlab.core.records import Change as Change
from headlab.core.records import Comparison as Comparison
from headlab.core.records import Evaluation as Evaluation
from headlab.core.records import Floats as Floats
from headlab.core.records import Head as Head
from headlab.core.records import HeadGrid as HeadGrid
from headlab.core.records import Ints as Ints
from headlab.core.records import Omissions as Omissions
from headlab.core.records import Progress as Progress
from headlab.core.records import SlopeUse as SlopeUse
from headlab.core.records import Stack as Stack
from headlab.core.records import arrays_sha256 as arrays_sha256
from headlab.core.records import base_and_kind as base_and_kind
from headlab.core.records import by_layer as by_layer
from headlab.core.records import canonical_json as canonical_json
from headlab.core.records import content_key as content_key
from headlab.core.records import do_nothing as do_nothing
from headlab.core.records import nouns_of_kinds as nouns_of_kinds
from headlab.core.records import omission_fields as omission_fields
from headlab.core.records import part as part
from headlab.core.records import stack_name as stack_name
from headlab.core.run_spec import RESULT_FORMAT as RESULT_FORMAT
from headlab.core.run_spec import SCORE_KIND as SCORE_KIND
from headlab.core.run_spec import MethodSpec as MethodSpec
from headlab.core.run_spec import ModelSpec as ModelSpec
from headlab.core.run_spec import RunSpec as RunSpec
from headlab.core.run_spec import TaskSpec as TaskSpec
from headlab.core.run_spec import former_specs as former_specs
from headlab.core.shown import Shown as Shown
from headlab.core.tables import EMPTY_CELL as EMPTY_CELL
from headlab.core.tables import Cell as Cell
from headlab.core.tables import Report as Report
from headlab.core.tables import Table as Table
from headlab.core.tables import clock_text as clock_text
from headlab.core.tables import duration_text as duration_text
from headlab.core.tables import is_number as is_number
from headlab.core.tables import is_p_column as is_p_column
from headlab.core.tables import p_equals_text as p_equals_text
from headlab.core.tables import p_value_text as p_value_text
from headlab.core.tables import percent_text as percent_text
from headlab.core.tables import size_text as size_text
from headlab.core.value_functions import CLIP as CLIP
from headlab.core.value_functions import FINE_STEPS as FINE_STEPS
from headlab.core.value_functions import FINEST_STEPS as FINEST_STEPS
from headlab.core.value_functions import VALUE_FUNCTIONS as VALUE_FUNCTIONS
from headlab.core.value_functions import ValueFunction as ValueFunction
from headlab.core.value_functions import answer_margins as answer_margins
from headlab.core.value_functions import display_unit as display_unit
from headlab.core.value_functions import log_probability as log_probability
from headlab.core.value_functions import smoothed_value as smoothed_value
from headlab.core.value_functions import surrogate as surrogate
from headlab.core.value_functions import value_function_of as value_function_of
from headlab.core.value_functions import value_of_answers as value_of_answers

if TYPE_CHECKING:
    from headlab.core.parallel import EXAMPLE_TOO_LARGE as EXAMPLE_TOO_LARGE
    from headlab.core.parallel import Rows as Rows
    from headlab.core.parallel import Tick as Tick
    from headlab.core.parallel import memory_errors_explained as memory_errors_explained
    from headlab.core.parallel import one_thread as one_thread
    from headlab.core.parallel import run_halving as run_halving
    from headlab.core.parallel import run_in_parallel as run_in_parallel
    from headlab.core.parallel import timed_pass as timed_pass
else:
    __getattr__ = names_on_demand(
        __name__,
        {
            "parallel": (
                "EXAMPLE_TOO_LARGE",
                "Rows",
                "Tick",
                "memory_errors_explained",
                "one_thread",
                "run_halving",
                "run_in_parallel",
                "timed_pass",
            )
        },
    )
