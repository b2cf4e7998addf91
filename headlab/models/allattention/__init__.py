"""The All-attention Transformer.

Persistent vectors in the heads replace the feed-forward layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.core import names_on_demand
from headlab.models.allattention.positions import LEARNED as LEARNED
from headlab.models.allattention.positions import POSITIONS as POSITIONS
from headlab.models.allattention.positions import RELATIVE as RELATIVE

if TYPE_CHECKING:
    from headlab.models.allattention.modelling import MODEL_TYPE as MODEL_TYPE
    from headlab.models.allattention.modelling import AllAttention as AllAttention
    from headlab.models.allattention.modelling import AllAttentionConfig as AllAttentionConfig
    from headlab.models.allattention.modelling import (
        AllAttentionForCausalLM as AllAttentionForCausalLM,
    )
    from headlab.models.allattention.modelling import parameter_counts as parameter_counts
    from headlab.models.allattention.modelling import remove_heads as remove_heads
else:
    __getattr__ = names_on_demand(
        __name__,
        {
            "modelling": (
                "AllAttention",
                "AllAttentionConfig",
                "AllAttentionForCausalLM",
                "MODEL_TYPE",
                "parameter_counts",
                "remove_heads",
            )
        },
    )
