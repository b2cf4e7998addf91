"""Models that really shrink: heads taken out of the weights, with a proof that the answers stay."""

from headlab.models.shrunk_classes import make_known
from headlab.shrink.model import Shrunk, shrink_model

__all__ = ["Shrunk", "make_known", "shrink_model"]
