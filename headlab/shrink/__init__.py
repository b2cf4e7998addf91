"""Models that really shrink: heads are removed from the weights.

A proof shows that the outputs do not change.
"""

from headlab.models.shrunk_classes import make_known
from headlab.shrink.model import Shrunk, shrink_model
from headlab.shrink.silenced import silence_model

__all__ = ["Shrunk", "make_known", "shrink_model", "silence_model"]
from headlab.shrink.proof import ExportRecord as ExportRecord
from headlab.shrink.proof import MeansOf as MeansOf
from headlab.shrink.proof import ProofNumbers as ProofNumbers
from headlab.shrink.proof import Speed as Speed
