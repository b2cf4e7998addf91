"""The analyses of the papers, one question per file.

They are assembled from stored pieces (docs/experiments.md).
"""

from __future__ import annotations

from headlab.studies.head_kinds import HeadKind as HeadKind
from headlab.studies.head_kinds import HeadLists as HeadLists
from headlab.studies.head_kinds import heads_by_kind as heads_by_kind
from headlab.studies.head_kinds import heads_listed_by_kind as heads_listed_by_kind
from headlab.studies.head_kinds import languages_that_differ as languages_that_differ
from headlab.studies.published import with_paper as with_paper
from headlab.studies.result import Records as Records
from headlab.studies.result import readable_rows as readable_rows
from headlab.studies.result import result_of as result_of
from headlab.studies.result import typed_result as typed_result
from headlab.studies.table import BOUND as BOUND
from headlab.studies.table import CUT as CUT
from headlab.studies.table import DEFAULT_WITHIN as DEFAULT_WITHIN
from headlab.studies.table import ESTIMATE as ESTIMATE
from headlab.studies.table import EXPERIMENT as EXPERIMENT
from headlab.studies.table import HEADS as HEADS
from headlab.studies.table import INTERACTIONS as INTERACTIONS
from headlab.studies.table import KEEP as KEEP
from headlab.studies.table import LAYER as LAYER
from headlab.studies.table import METHOD as METHOD
from headlab.studies.table import METHOD_OPTIONS as METHOD_OPTIONS
from headlab.studies.table import OF as OF
from headlab.studies.table import ORDERS as ORDERS
from headlab.studies.table import PLAYERS as PLAYERS
from headlab.studies.table import STUDIES as STUDIES
from headlab.studies.table import TOP as TOP
from headlab.studies.table import VOCABULARY as VOCABULARY
from headlab.studies.table import VOCABULARY_CHOICES as VOCABULARY_CHOICES
from headlab.studies.table import Experiment as Experiment
from headlab.studies.table import earlier_scores_sentence as earlier_scores_sentence
from headlab.studies.table import offered_experiments as offered_experiments
from headlab.studies.table import studies_of as studies_of
from headlab.studies.table import study_run_by as study_run_by
