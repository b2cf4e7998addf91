"""Stored results on pages: which there are for a choice, and which of them is shown."""

from __future__ import annotations

from headlab.dashboard.panels.stored.page_report import page_report as page_report
from headlab.dashboard.panels.stored.page_report import page_report_name as page_report_name
from headlab.dashboard.panels.stored.result_labels import draw_label_form as draw_label_form
from headlab.dashboard.panels.stored.result_labels import draw_label_line as draw_label_line
from headlab.dashboard.panels.stored.shelf import StoredByLanguage as StoredByLanguage
from headlab.dashboard.panels.stored.shelf import current_weights as current_weights
from headlab.dashboard.panels.stored.shelf import draw_form_for_missing as draw_form_for_missing
from headlab.dashboard.panels.stored.shown_report import ShownFront as ShownFront
from headlab.dashboard.panels.stored.shown_report import choose_experiment as choose_experiment
from headlab.dashboard.panels.stored.shown_report import requested_report as requested_report
from headlab.dashboard.panels.stored.shown_report import show_front_next as show_front_next
from headlab.dashboard.panels.stored.shown_report import show_report_next as show_report_next
from headlab.dashboard.panels.stored.shown_report import write_report_link as write_report_link
from headlab.dashboard.panels.stored.stored_gates import DEFAULT_WEIGHTS as DEFAULT_WEIGHTS
from headlab.dashboard.panels.stored.stored_gates import GATES_FORM as GATES_FORM
from headlab.dashboard.panels.stored.stored_gates import MAIN_GATE_OPTIONS as MAIN_GATE_OPTIONS
from headlab.dashboard.panels.stored.stored_gates import GatesForm as GatesForm
from headlab.dashboard.panels.stored.stored_gates import Sweep as Sweep
from headlab.dashboard.panels.stored.stored_gates import gates_job_refusal as gates_job_refusal
from headlab.dashboard.panels.stored.stored_gates import head_gates_table as head_gates_table
from headlab.dashboard.panels.stored.stored_gates import measured_splits as measured_splits
from headlab.dashboard.panels.stored.stored_gates import open_requested_run as open_requested_run
from headlab.dashboard.panels.stored.stored_gates import open_run_next as open_run_next
from headlab.dashboard.panels.stored.stored_gates import run_facts as run_facts
from headlab.dashboard.panels.stored.stored_gates import run_hover_text as run_hover_text
from headlab.dashboard.panels.stored.stored_gates import run_words as run_words
from headlab.dashboard.panels.stored.stored_gates import stored_sweeps as stored_sweeps
from headlab.dashboard.panels.stored.stored_gates import sweep_fingerprint as sweep_fingerprint
from headlab.dashboard.panels.stored.stored_gates import sweep_labels as sweep_labels
from headlab.dashboard.panels.stored.stored_gates import sweep_widget_key as sweep_widget_key
from headlab.dashboard.panels.stored.stored_gates import training_options as training_options
from headlab.dashboard.panels.stored.stored_reports import StoredJob as StoredJob
from headlab.dashboard.panels.stored.stored_reports import commands_again as commands_again
from headlab.dashboard.panels.stored.stored_reports import creation_seconds as creation_seconds
from headlab.dashboard.panels.stored.stored_reports import matching_reports as matching_reports
from headlab.dashboard.panels.stored.stored_reports import report_differences as report_differences
from headlab.dashboard.panels.stored.stored_reports import report_facts as report_facts
from headlab.dashboard.panels.stored.stored_reports import report_label as report_label
from headlab.dashboard.panels.stored.stored_reports import resolved_options as resolved_options
from headlab.dashboard.panels.stored.stored_reports import sizes_words as sizes_words
from headlab.dashboard.panels.stored.stored_roles import ROLES_FORM as ROLES_FORM
from headlab.dashboard.panels.stored.stored_roles import SENTENCE_SOURCES as SENTENCE_SOURCES
from headlab.dashboard.panels.stored.stored_roles import TASK_SOURCE as TASK_SOURCE
from headlab.dashboard.panels.stored.stored_roles import TREEBANK_SOURCE as TREEBANK_SOURCE
from headlab.dashboard.panels.stored.stored_roles import RolesRequest as RolesRequest
from headlab.dashboard.panels.stored.stored_roles import StoredRoles as StoredRoles
from headlab.dashboard.panels.stored.stored_roles import draw_role_map as draw_role_map
from headlab.dashboard.panels.stored.stored_roles import role_counts_by_size as role_counts_by_size
from headlab.dashboard.panels.stored.stored_roles import roles_job_refusal as roles_job_refusal
from headlab.dashboard.panels.stored.stored_roles import roles_report_label as roles_report_label
from headlab.dashboard.panels.stored.stored_roles import roles_requests as roles_requests
from headlab.dashboard.panels.stored.stored_roles import (
    stored_roles_reports as stored_roles_reports,
)
