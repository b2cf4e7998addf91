"""All intervention in forward passes: switching heads off, observing them, starting at a later layer."""

from headlab.hooks.model import Model as Model
from headlab.hooks.model import as_gates as as_gates
from headlab.hooks.model import attach as attach
from headlab.hooks.model import attention as attention
from headlab.hooks.model import excluded_ids as excluded_ids
from headlab.hooks.model import gated as gated
from headlab.hooks.model import head_means as head_means
from headlab.hooks.model import sides as sides
from headlab.hooks.model import started as started
from headlab.hooks.model import sum_weights as sum_weights
from headlab.hooks.state import Active as Active
from headlab.hooks.state import FanOut as FanOut
from headlab.hooks.state import LayerStates as LayerStates
from headlab.hooks.state import Trunk as Trunk
