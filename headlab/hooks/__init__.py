"""All intervention in forward passes: switching heads off, observing them, starting at a later layer."""

from headlab.hooks.model import Model as Model
from headlab.hooks.model import attention as attention
from headlab.hooks.model import gated as gated
from headlab.hooks.model import gated_here as gated_here
from headlab.hooks.model import head_means as head_means
from headlab.hooks.model import sum_weights as sum_weights
