"""All intervention in forward passes: switching heads off, observing them, starting at a later layer."""

from headlab.hooks.find import FAILURES as FAILURES
from headlab.hooks.loading import load as load
from headlab.hooks.loading import place_of as place_of
from headlab.hooks.model import MODEL as MODEL
from headlab.hooks.model import Gates as Gates
from headlab.hooks.model import Model as Model
from headlab.hooks.model import as_gates as as_gates
from headlab.hooks.model import attach as attach
from headlab.hooks.model import attention as attention
from headlab.hooks.model import configured_start as configured_start
from headlab.hooks.model import gated as gated
from headlab.hooks.model import gated_here as gated_here
from headlab.hooks.model import head_means as head_means
from headlab.hooks.model import not_finite as not_finite
from headlab.hooks.model import started as started
from headlab.hooks.model import sum_weights as sum_weights
from headlab.hooks.positions import plain as plain
from headlab.hooks.positions import teach_positions as teach_positions
from headlab.hooks.state import Active as Active
from headlab.hooks.state import FanOut as FanOut
from headlab.hooks.state import LayerStates as LayerStates
from headlab.hooks.state import Trunk as Trunk
from headlab.hooks.tokens import needs_of as needs_of
from headlab.hooks.tokens import tokens_note as tokens_note
from headlab.hooks.tokens import tokens_version as tokens_version
