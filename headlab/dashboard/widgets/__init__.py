"""What pages are made of: buttons, forms, head grids, figures and tables.

Each has its log of presses.
"""

from headlab.dashboard.widgets.figures import PLOTLY_CONFIG as PLOTLY_CONFIG
from headlab.dashboard.widgets.figures import draw_figure as draw_figure
from headlab.dashboard.widgets.figures import file_stem_of as file_stem_of
from headlab.dashboard.widgets.figures import no_row_action as no_row_action
from headlab.dashboard.widgets.figures import show_commands as show_commands
from headlab.dashboard.widgets.figures import show_how_made as show_how_made
from headlab.dashboard.widgets.figures import show_named_values as show_named_values
from headlab.dashboard.widgets.figures import show_skipped as show_skipped
from headlab.dashboard.widgets.figures import show_table as show_table
from headlab.dashboard.widgets.figures import table_height as table_height
from headlab.dashboard.widgets.figures import with_p_values as with_p_values
from headlab.dashboard.widgets.form_values import Form as Form
from headlab.dashboard.widgets.form_values import FormValues as FormValues
from headlab.dashboard.widgets.form_values import draw_option as draw_option
from headlab.dashboard.widgets.form_values import reason_refused as reason_refused
from headlab.dashboard.widgets.form_values import values_at_press as values_at_press
from headlab.dashboard.widgets.form_values import widget_values as widget_values
from headlab.dashboard.widgets.form_values import with_typed_numbers as with_typed_numbers
from headlab.dashboard.widgets.headgrid import draw_grid as draw_grid
from headlab.dashboard.widgets.headgrid import draw_head_switches as draw_head_switches
from headlab.dashboard.widgets.headgrid import draw_map as draw_map
from headlab.dashboard.widgets.headgrid import draw_small_maps as draw_small_maps
from headlab.dashboard.widgets.headgrid import group_sizes_of as group_sizes_of
from headlab.dashboard.widgets.headgrid import head_press_action as head_press_action
from headlab.dashboard.widgets.headgrid import maps_details as maps_details
from headlab.dashboard.widgets.headgrid import maps_title as maps_title
from headlab.dashboard.widgets.headgrid import pick_scale as pick_scale
from headlab.dashboard.widgets.headgrid import remember_head_groups as remember_head_groups
from headlab.dashboard.widgets.notices import keep_known_choice as keep_known_choice
from headlab.dashboard.widgets.notices import notify_of_link as notify_of_link
from headlab.dashboard.widgets.notices import pick_result as pick_result
from headlab.dashboard.widgets.notices import remember_choice as remember_choice
from headlab.dashboard.widgets.notices import remembered_choice as remembered_choice
from headlab.dashboard.widgets.notices import unknown_in_link as unknown_in_link
from headlab.dashboard.widgets.page_state import PageState as PageState
from headlab.dashboard.widgets.presses import Button as Button
from headlab.dashboard.widgets.presses import button as button
from headlab.dashboard.widgets.presses import button_row as button_row
from headlab.dashboard.widgets.presses import download_button as download_button
from headlab.dashboard.widgets.presses import redraw_every as redraw_every
from headlab.dashboard.widgets.presses import set_first_value as set_first_value
from headlab.dashboard.widgets.presses import set_widget as set_widget
from headlab.dashboard.widgets.presses import uninterrupted as uninterrupted
