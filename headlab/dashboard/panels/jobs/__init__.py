"""Jobs on pages: forms that start them, their queue, progress, forecasts, and growing maps."""

from __future__ import annotations

from headlab.dashboard.panels.jobs.fitting import can_do as can_do
from headlab.dashboard.panels.jobs.fitting import draw_misfit as draw_misfit
from headlab.dashboard.panels.jobs.fitting import misfit_reason as misfit_reason
from headlab.dashboard.panels.jobs.job_actions import RAY_LEAD as RAY_LEAD
from headlab.dashboard.panels.jobs.job_actions import RESUMES_HELP as RESUMES_HELP
from headlab.dashboard.panels.jobs.job_actions import arrived_forecast as arrived_forecast
from headlab.dashboard.panels.jobs.job_actions import cancel_button as cancel_button
from headlab.dashboard.panels.jobs.job_actions import confirm_job_deletion as confirm_job_deletion
from headlab.dashboard.panels.jobs.job_actions import delete_job as delete_job
from headlab.dashboard.panels.jobs.job_actions import draw_forecast as draw_forecast
from headlab.dashboard.panels.jobs.job_actions import draw_job_bar as draw_job_bar
from headlab.dashboard.panels.jobs.job_actions import draw_job_place as draw_job_place
from headlab.dashboard.panels.jobs.job_actions import draw_job_progress as draw_job_progress
from headlab.dashboard.panels.jobs.job_actions import draw_live_jobs as draw_live_jobs
from headlab.dashboard.panels.jobs.job_actions import end_job_form as end_job_form
from headlab.dashboard.panels.jobs.job_actions import forecast_pace as forecast_pace
from headlab.dashboard.panels.jobs.job_actions import forecast_seconds as forecast_seconds
from headlab.dashboard.panels.jobs.job_actions import (
    is_deletion_to_confirm as is_deletion_to_confirm,
)
from headlab.dashboard.panels.jobs.job_actions import job_place as job_place
from headlab.dashboard.panels.jobs.job_actions import job_requests as job_requests
from headlab.dashboard.panels.jobs.job_actions import live_jobs as live_jobs
from headlab.dashboard.panels.jobs.job_actions import (
    missing_weights_reason as missing_weights_reason,
)
from headlab.dashboard.panels.jobs.job_actions import open_job as open_job
from headlab.dashboard.panels.jobs.job_actions import opened_job as opened_job
from headlab.dashboard.panels.jobs.job_actions import rerun_if_job_ended as rerun_if_job_ended
from headlab.dashboard.panels.jobs.job_actions import (
    rerun_when_jobs_change as rerun_when_jobs_change,
)
from headlab.dashboard.panels.jobs.job_actions import resume_job as resume_job
from headlab.dashboard.panels.jobs.job_actions import scores_refusal as scores_refusal
from headlab.dashboard.panels.jobs.job_actions import show_last_failure as show_last_failure
from headlab.dashboard.panels.jobs.job_actions import show_started_job as show_started_job
from headlab.dashboard.panels.jobs.job_actions import (
    show_terminal_commands as show_terminal_commands,
)
from headlab.dashboard.panels.jobs.job_actions import start_job as start_job
from headlab.dashboard.panels.jobs.job_actions import start_job_of_form as start_job_of_form
from headlab.dashboard.panels.jobs.job_format import LIVE_STATES as LIVE_STATES
from headlab.dashboard.panels.jobs.job_format import ended_line as ended_line
from headlab.dashboard.panels.jobs.job_format import forecast_line as forecast_line
from headlab.dashboard.panels.jobs.job_format import job_details as job_details
from headlab.dashboard.panels.jobs.job_format import job_of_row as job_of_row
from headlab.dashboard.panels.jobs.job_format import job_title as job_title
from headlab.dashboard.panels.jobs.job_format import languages_in as languages_in
from headlab.dashboard.panels.jobs.job_format import progress_line as progress_line
from headlab.dashboard.panels.jobs.job_format import share_done as share_done
from headlab.dashboard.panels.jobs.job_format import sorted_queue as sorted_queue
from headlab.dashboard.panels.jobs.job_format import waiting_line as waiting_line
from headlab.dashboard.panels.jobs.job_format import words_of_job as words_of_job
from headlab.dashboard.panels.jobs.job_offer import draw_missing_scores as draw_missing_scores
from headlab.dashboard.panels.jobs.job_offer import offer_missing_scores as offer_missing_scores
from headlab.dashboard.panels.jobs.job_offer import score_job as score_job
from headlab.dashboard.panels.jobs.job_offer import score_job_cost as score_job_cost
from headlab.dashboard.panels.jobs.sharpening_map import draw_head_so_far as draw_head_so_far
from headlab.dashboard.panels.jobs.sharpening_map import draw_sharpening_map as draw_sharpening_map
from headlab.dashboard.panels.jobs.sharpening_map import head_value_words as head_value_words
from headlab.dashboard.panels.jobs.sharpening_map import interval_verdict as interval_verdict
from headlab.dashboard.panels.jobs.sharpening_map import language_computed as language_computed
from headlab.dashboard.panels.jobs.sharpening_map import map_so_far as map_so_far
from headlab.dashboard.panels.jobs.sharpening_map import sign_flag as sign_flag
