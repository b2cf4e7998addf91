"""Masks: which heads are kept, how they were chosen, and the mask file formats."""

from headlab.masks.compare import WAYS, combine, compare, noted, seen
from headlab.masks.convert import FORMS, USES, convert_in, convert_out, form_of, parse_grid
from headlab.masks.mask import MASK_VERSION, Mask, architecture_of, full_mask, load_mask, mask_from_json, mask_from_text
from headlab.masks.rules import RISKY_SHARE, Rule, choose, removal_order, warn_if_risky
from headlab.masks.snippet import Place, snippet

__all__ = [
    "FORMS",
    "MASK_VERSION",
    "RISKY_SHARE",
    "USES",
    "WAYS",
    "Mask",
    "Place",
    "Rule",
    "architecture_of",
    "choose",
    "combine",
    "compare",
    "convert_in",
    "convert_out",
    "form_of",
    "full_mask",
    "load_mask",
    "mask_from_json",
    "mask_from_text",
    "noted",
    "parse_grid",
    "removal_order",
    "seen",
    "snippet",
    "warn_if_risky",
]
