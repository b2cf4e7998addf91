"""Training of the shipped models and of users' own.

Fine-tuning, gates, language models and translation models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headlab.core import names_on_demand
from headlab.training.l0_options import ALL as ALL
from headlab.training.l0_options import GateOptions as GateOptions
from headlab.training.l0_options import GateStep as GateStep
from headlab.training.l0_options import learned_on as learned_on
from headlab.training.l0_options import options_of as options_of
from headlab.training.l0_table import SPLITS as SPLITS
from headlab.training.l0_table import accuracy_name as accuracy_name
from headlab.training.l0_table import gates_table as gates_table
from headlab.training.l0_table import run_notes as run_notes
from headlab.training.options import TRANSFORMER as TRANSFORMER
from headlab.training.options import FinetuneOptions as FinetuneOptions
from headlab.training.options import FinetuneStep as FinetuneStep
from headlab.training.options import LmGateOptions as LmGateOptions
from headlab.training.options import LmOptions as LmOptions
from headlab.training.options import LmStep as LmStep
from headlab.training.options import StepMade as StepMade
from headlab.training.options import TranslationOptions as TranslationOptions
from headlab.training.options import Windows as Windows
from headlab.training.options import default_preset as default_preset

if TYPE_CHECKING:
    from headlab.training.l0_learn import learn_gates as learn_gates
    from headlab.training.l0_learn import sweep as sweep
    from headlab.training.l0_learn import train_on as train_on
    from headlab.training.lm_perplexity import RelativeSpeed as RelativeSpeed
    from headlab.training.lm_perplexity import perplexity_ratio as perplexity_ratio
    from headlab.training.lm_perplexity import speeds as speeds
    from headlab.training.lm_prune import AllClosed as AllClosed
    from headlab.training.lm_prune import check_apart as check_apart
    from headlab.training.lm_prune import config_of as config_of
    from headlab.training.lm_prune import prune_lm as prune_lm
    from headlab.training.lm_train import model_config_of as model_config_of
    from headlab.training.lm_train import read_sums as read_sums
    from headlab.training.lm_train import seconds_a_window as seconds_a_window
    from headlab.training.lm_train import train_lm as train_lm
    from headlab.training.output import EMBEDDED_BASE as EMBEDDED_BASE
    from headlab.training.output import check_out as check_out
    from headlab.training.output import embedded_base as embedded_base
    from headlab.training.output import find_base as find_base
    from headlab.training.steps import Watch as Watch
    from headlab.training.translation import NoVocabulary as NoVocabulary
    from headlab.training.translation import check_pieces as check_pieces
    from headlab.training.translation import check_sentences as check_sentences
    from headlab.training.translation import seconds_a_sentence as seconds_a_sentence
    from headlab.training.translation import train_translation as train_translation
else:
    __getattr__ = names_on_demand(
        __name__,
        {
            "l0_learn": (
                "learn_gates",
                "sweep",
                "train_on",
            ),
            "lm_perplexity": (
                "RelativeSpeed",
                "perplexity_ratio",
                "speeds",
            ),
            "lm_prune": (
                "AllClosed",
                "check_apart",
                "config_of",
                "prune_lm",
            ),
            "lm_train": (
                "read_sums",
                "seconds_a_window",
                "model_config_of",
                "train_lm",
            ),
            "output": (
                "EMBEDDED_BASE",
                "check_out",
                "embedded_base",
                "find_base",
            ),
            "steps": ("Watch",),
            "translation": (
                "NoVocabulary",
                "check_pieces",
                "check_sentences",
                "seconds_a_sentence",
                "train_translation",
            ),
        },
    )
