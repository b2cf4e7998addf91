"""Masks: which heads are kept, how they were chosen, and the mask file formats."""

from headlab.masks.compare import WAYS as WAYS
from headlab.masks.compare import combine as combine
from headlab.masks.compare import compare as compare
from headlab.masks.compare import noted as noted
from headlab.masks.compare import seen as seen
from headlab.masks.convert import FORMS as FORMS
from headlab.masks.convert import USES as USES
from headlab.masks.convert import convert_in as convert_in
from headlab.masks.convert import convert_out as convert_out
from headlab.masks.convert import form_of as form_of
from headlab.masks.convert import parse_grid as parse_grid
from headlab.masks.mask import Mask as Mask
from headlab.masks.mask import architecture_of as architecture_of
from headlab.masks.mask import full_mask as full_mask
from headlab.masks.mask import load_mask as load_mask
from headlab.masks.mask import mask_from_json as mask_from_json
from headlab.masks.mask import mask_from_text as mask_from_text
from headlab.masks.rules import RISKY_SHARE as RISKY_SHARE
from headlab.masks.rules import choose as choose
from headlab.masks.rules import removal_order as removal_order
from headlab.masks.snippet import Place as Place
from headlab.masks.snippet import snippet as snippet
