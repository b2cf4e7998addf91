"""Masks on pages: their history, files, accuracy and verdict, and rules that suggest heads."""

from __future__ import annotations

from headlab.dashboard.panels.masks.accuracy import MAX_UNFOLDED_LANGUAGES as MAX_UNFOLDED_LANGUAGES
from headlab.dashboard.panels.masks.accuracy import FigurePlaces as FigurePlaces
from headlab.dashboard.panels.masks.accuracy import arriving_figures as arriving_figures
from headlab.dashboard.panels.masks.accuracy import draw_arriving_figures as draw_arriving_figures
from headlab.dashboard.panels.masks.accuracy import draw_test_verdict as draw_test_verdict
from headlab.dashboard.panels.masks.accuracy import pick_stand_in as pick_stand_in
from headlab.dashboard.panels.masks.accuracy import session_figures as session_figures
from headlab.dashboard.panels.masks.history import MaskHistory as MaskHistory
from headlab.dashboard.panels.masks.history import apply_mask_link as apply_mask_link
from headlab.dashboard.panels.masks.history import (
    histories_by_fingerprint as histories_by_fingerprint,
)
from headlab.dashboard.panels.masks.history import history_of as history_of
from headlab.dashboard.panels.masks.history import (
    kept_heads_of_link_text as kept_heads_of_link_text,
)
from headlab.dashboard.panels.masks.history import mask_link_text as mask_link_text
from headlab.dashboard.panels.masks.history import write_mask_link as write_mask_link
from headlab.dashboard.panels.masks.known_masks import masks_of_gates as masks_of_gates
from headlab.dashboard.panels.masks.known_masks import masks_of_prune_page as masks_of_prune_page
from headlab.dashboard.panels.masks.known_masks import suggested_masks as suggested_masks
from headlab.dashboard.panels.masks.known_masks import usual_removed_count as usual_removed_count
from headlab.dashboard.panels.masks.mask_figures import EXAMPLES_BY_SPLIT as EXAMPLES_BY_SPLIT
from headlab.dashboard.panels.masks.mask_figures import AccuracyQuestion as AccuracyQuestion
from headlab.dashboard.panels.masks.mask_figures import KnownFigures as KnownFigures
from headlab.dashboard.panels.masks.mask_figures import (
    interval_of_difference as interval_of_difference,
)
from headlab.dashboard.panels.masks.mask_figures import stream_figures as stream_figures
from headlab.dashboard.panels.masks.mask_files import (
    choice_without_accuracies as choice_without_accuracies,
)
from headlab.dashboard.panels.masks.mask_files import draw_mask_files as draw_mask_files
from headlab.dashboard.panels.masks.mask_files import mask_file_name as mask_file_name
from headlab.dashboard.panels.masks.mask_files import offer_mask_file as offer_mask_file
from headlab.dashboard.panels.masks.mask_files import (
    with_measured_accuracies as with_measured_accuracies,
)
from headlab.dashboard.panels.masks.masks_of_fronts import masks_of_fronts as masks_of_fronts
from headlab.dashboard.panels.masks.model_players import ModelPlayers as ModelPlayers
from headlab.dashboard.panels.masks.model_players import players_of_model as players_of_model
from headlab.dashboard.panels.masks.share import draw_share as draw_share
from headlab.dashboard.panels.masks.share import place_share as place_share
from headlab.dashboard.panels.masks.share import show_masks_in_report as show_masks_in_report
from headlab.dashboard.panels.masks.suggestion import CORRECTION_WORDS as CORRECTION_WORDS
from headlab.dashboard.panels.masks.suggestion import MEAN_OF_LANGUAGES as MEAN_OF_LANGUAGES
from headlab.dashboard.panels.masks.suggestion import SUGGESTION_RULES as SUGGESTION_RULES
from headlab.dashboard.panels.masks.suggestion import Suggestion as Suggestion
from headlab.dashboard.panels.masks.suggestion import correction_words as correction_words
from headlab.dashboard.panels.masks.suggestion import false_heads_words as false_heads_words
from headlab.dashboard.panels.masks.suggestion import origin_of_mask as origin_of_mask
from headlab.dashboard.panels.masks.suggestion import pooled_scores as pooled_scores
from headlab.dashboard.panels.masks.suggestion import removal_warning as removal_warning
from headlab.dashboard.panels.masks.suggestion import rule_meaning as rule_meaning
from headlab.dashboard.panels.masks.suggestion import suggested_heads as suggested_heads
from headlab.dashboard.panels.masks.suggestion import usable_rules as usable_rules
from headlab.dashboard.panels.masks.target_model import TargetModel as TargetModel
from headlab.dashboard.panels.masks.target_model import target_of as target_of
from headlab.dashboard.panels.masks.target_model import why_not_openable as why_not_openable
from headlab.dashboard.panels.masks.written_models import draw_written_model as draw_written_model
from headlab.dashboard.panels.masks.written_models import offer_written_model as offer_written_model
from headlab.dashboard.panels.masks.written_models import why_not_removable as why_not_removable
