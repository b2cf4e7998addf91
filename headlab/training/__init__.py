"""Training of the shipped models and of users' own: fine-tuning, gates, language models and translation models."""

from headlab.training.l0_options import ALL as ALL
from headlab.training.l0_options import GateOptions as GateOptions
from headlab.training.l0_options import GateStep as GateStep
from headlab.training.l0_table import SPLITS as SPLITS
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
