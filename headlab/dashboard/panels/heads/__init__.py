"""Heads on pages: the chosen one, what it attends to, and how two rankings differ."""

from __future__ import annotations

from headlab.dashboard.panels.heads.attended_sentences import BERTVIZ as BERTVIZ
from headlab.dashboard.panels.heads.attended_sentences import HEAD_COLOURS as HEAD_COLOURS
from headlab.dashboard.panels.heads.attended_sentences import HEAD_KINDS as HEAD_KINDS
from headlab.dashboard.panels.heads.attended_sentences import MAX_HEADS as MAX_HEADS
from headlab.dashboard.panels.heads.attended_sentences import MAX_SIDE_BY_SIDE as MAX_SIDE_BY_SIDE
from headlab.dashboard.panels.heads.attended_sentences import (
    MAX_TEXT_CHARACTERS as MAX_TEXT_CHARACTERS,
)
from headlab.dashboard.panels.heads.attended_sentences import OWN_SENTENCES as OWN_SENTENCES
from headlab.dashboard.panels.heads.attended_sentences import PAIR_SEPARATOR as PAIR_SEPARATOR
from headlab.dashboard.panels.heads.attended_sentences import TASK_SENTENCES as TASK_SENTENCES
from headlab.dashboard.panels.heads.attended_sentences import ShownSentence as ShownSentence
from headlab.dashboard.panels.heads.attended_sentences import (
    label_examples_by_title as label_examples_by_title,
)
from headlab.dashboard.panels.heads.attended_sentences import link_to_attention as link_to_attention
from headlab.dashboard.panels.heads.attended_sentences import offered_examples as offered_examples
from headlab.dashboard.panels.heads.attended_sentences import pick_sentences as pick_sentences
from headlab.dashboard.panels.heads.attended_sentences import (
    side_by_side_params as side_by_side_params,
)
from headlab.dashboard.panels.heads.changed_answers import (
    draw_changed_answers as draw_changed_answers,
)
from headlab.dashboard.panels.heads.contrast import COMPARED_KEY_LENGTH as COMPARED_KEY_LENGTH
from headlab.dashboard.panels.heads.contrast import COMPARISON_HEADING as COMPARISON_HEADING
from headlab.dashboard.panels.heads.contrast import NO_COMPARISON as NO_COMPARISON
from headlab.dashboard.panels.heads.contrast import HeadAction as HeadAction
from headlab.dashboard.panels.heads.contrast import draw_comparison as draw_comparison
from headlab.dashboard.panels.heads.contrast import (
    draw_comparison_by_language as draw_comparison_by_language,
)
from headlab.dashboard.panels.heads.contrast import (
    draw_comparison_section as draw_comparison_section,
)
from headlab.dashboard.panels.heads.contrast import pick_compared_result as pick_compared_result
from headlab.dashboard.panels.heads.contrast import ranking_sentence as ranking_sentence
from headlab.dashboard.panels.heads.contrast import unitless_scores as unitless_scores
from headlab.dashboard.panels.heads.head_actions import draw_head_actions as draw_head_actions
from headlab.dashboard.panels.heads.head_actions import mask_without as mask_without
from headlab.dashboard.panels.heads.head_actions import switch_off as switch_off
from headlab.dashboard.panels.heads.head_card import draw_card as draw_card
from headlab.dashboard.panels.heads.head_card import draw_details as draw_details
from headlab.dashboard.panels.heads.head_card import draw_every_head as draw_every_head
from headlab.dashboard.panels.heads.head_choice import HEAD_PARAM as HEAD_PARAM
from headlab.dashboard.panels.heads.head_choice import pick_head as pick_head
from headlab.dashboard.panels.heads.head_data import HeadData as HeadData
from headlab.dashboard.panels.heads.head_data import head_data_of as head_data_of
from headlab.dashboard.panels.heads.head_data import rank_name as rank_name
from headlab.dashboard.panels.heads.head_tables import confidence_scores as confidence_scores
from headlab.dashboard.panels.heads.head_tables import table_of_heads as table_of_heads
from headlab.dashboard.panels.heads.role_card import draw_role_card as draw_role_card
from headlab.dashboard.panels.heads.role_card import draw_role_details as draw_role_details
from headlab.dashboard.panels.heads.role_card import draw_role_examples as draw_role_examples
from headlab.dashboard.panels.heads.role_card import draw_roles_of_head as draw_roles_of_head
from headlab.dashboard.panels.heads.role_effect import RoleEffect as RoleEffect
from headlab.dashboard.panels.heads.role_effect import effect_of_role as effect_of_role
from headlab.dashboard.panels.heads.role_effect import heads_with as heads_with
from headlab.dashboard.panels.heads.strongest_links import MAX_TEXT_LENGTH as MAX_TEXT_LENGTH
from headlab.dashboard.panels.heads.strongest_links import RankedSentence as RankedSentence
from headlab.dashboard.panels.heads.strongest_links import ReadSentences as ReadSentences
from headlab.dashboard.panels.heads.strongest_links import SentenceSource as SentenceSource
from headlab.dashboard.panels.heads.strongest_links import draw_reading as draw_reading
from headlab.dashboard.panels.heads.strongest_links import rank_sentences as rank_sentences
from headlab.dashboard.panels.heads.strongest_links import ranks_by_mean as ranks_by_mean
from headlab.dashboard.panels.heads.strongest_links import sentences_read as sentences_read
from headlab.dashboard.panels.heads.strongest_links import start_reading as start_reading
from headlab.dashboard.panels.heads.strongest_links import stop_reading as stop_reading
