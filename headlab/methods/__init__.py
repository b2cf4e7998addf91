"""Methods that score heads: one module per method, and a table of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.core import names_on_demand
from headlab.methods.costs import ChosenResults as ChosenResults
from headlab.methods.costs import caution as caution
from headlab.methods.costs import cautions as cautions
from headlab.methods.costs import cost_of as cost_of
from headlab.methods.costs import expected_forwards as expected_forwards
from headlab.methods.costs import is_alike as is_alike
from headlab.methods.costs import is_encoder as is_encoder
from headlab.methods.costs import options_of as options_of
from headlab.methods.costs import order_renewal_of as order_renewal_of
from headlab.methods.costs import pace as pace
from headlab.methods.costs import remarks as remarks
from headlab.methods.costs import remarks_on_choice as remarks_on_choice
from headlab.methods.costs import renewal_of as renewal_of
from headlab.methods.costs import renewed_in as renewed_in
from headlab.methods.costs import select as select
from headlab.methods.costs import settings as settings
from headlab.methods.costs import spec_of as spec_of
from headlab.methods.costs import target_half_width_of as target_half_width_of
from headlab.methods.defaults import method_on as method_on
from headlab.methods.defaults import options_on as options_on
from headlab.methods.forecast import Forecast as Forecast
from headlab.methods.forecast import Part as Part
from headlab.methods.forecast import forecast_of as forecast_of
from headlab.methods.method import BACKWARD_PASS_COST as BACKWARD_PASS_COST
from headlab.methods.method import Method as Method
from headlab.methods.method import MethodCost as MethodCost
from headlab.methods.method import Options as Options
from headlab.methods.superseded import Superseded as Superseded
from headlab.methods.superseded import earlier_keys as earlier_keys
from headlab.methods.superseded import remove_superseded as remove_superseded
from headlab.methods.superseded import superseded_results as superseded_results
from headlab.methods.superseded import version_of as version_of
from headlab.methods.table import ATTENTION_METHOD as ATTENTION_METHOD
from headlab.methods.table import DEFAULT_METHOD as DEFAULT_METHOD
from headlab.methods.table import FIRST_MAP_METHOD as FIRST_MAP_METHOD
from headlab.methods.table import HOME as HOME
from headlab.methods.table import LIVE_METHOD as LIVE_METHOD
from headlab.methods.table import METHODS as METHODS
from headlab.methods.table import ORDERINGS as ORDERINGS
from headlab.methods.table import RANDOM_METHOD as RANDOM_METHOD
from headlab.methods.table import REFUSED_IN_A_LANGUAGE as REFUSED_IN_A_LANGUAGE
from headlab.methods.table import RIVALS as RIVALS
from headlab.methods.table import method as method

if TYPE_CHECKING:
    from headlab.methods.neuron_groups import model_with_players as model_with_players
    from headlab.methods.neuron_groups import player_groups as player_groups
    from headlab.methods.neuron_groups import players_to_time as players_to_time
    from headlab.methods.run import outcome_of as outcome_of
    from headlab.methods.run import score as score
    from headlab.methods.run import scores_so_far as scores_so_far
    from headlab.methods.run import seconds_per_forward as seconds_per_forward
    from headlab.methods.run import stored_result as stored_result
    from headlab.methods.spec import answers_spec as answers_spec
    from headlab.methods.spec import make_spec as make_spec
    from headlab.methods.work import Arrays as Arrays
    from headlab.methods.work import HeadGame as HeadGame
    from headlab.methods.work import Helpers as Helpers
    from headlab.methods.work import Outcome as Outcome
    from headlab.methods.work import Work as Work
    from headlab.methods.work import saves_of as saves_of
else:
    __getattr__ = names_on_demand(
        __name__,
        {
            "neuron_groups": (
                "model_with_players",
                "player_groups",
                "players_to_time",
            ),
            "run": (
                "outcome_of",
                "scores_so_far",
                "score",
                "stored_result",
                "seconds_per_forward",
            ),
            "spec": (
                "answers_spec",
                "make_spec",
            ),
            "work": (
                "Arrays",
                "HeadGame",
                "Helpers",
                "Outcome",
                "Work",
                "saves_of",
            ),
        },
    )
