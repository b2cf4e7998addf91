"""Models that really shrink: heads and other players are removed from the weights.

A proof shows that the outputs do not change.
"""

from __future__ import annotations

from headlab.models.shrunk_classes import make_known as make_known
from headlab.shrink.duo import DuoRecord as DuoRecord
from headlab.shrink.duo import read_pattern as read_pattern
from headlab.shrink.duo import remark_on as remark_on
from headlab.shrink.duo import sizes_of_mask as sizes_of_mask
from headlab.shrink.duo import write_duo_folder as write_duo_folder
from headlab.shrink.folder import COMPARING as COMPARING
from headlab.shrink.folder import COMPARING_ONNX as COMPARING_ONNX
from headlab.shrink.folder import GGUF_FILE as GGUF_FILE
from headlab.shrink.folder import READING_BACK as READING_BACK
from headlab.shrink.folder import WRITING as WRITING
from headlab.shrink.folder import WrittenModel as WrittenModel
from headlab.shrink.folder import check_target as check_target
from headlab.shrink.folder import load_shrunk as load_shrunk
from headlab.shrink.folder import require_onnx as require_onnx
from headlab.shrink.folder import write_shrunk as write_shrunk
from headlab.shrink.gguf_file import EXACT_TYPE as EXACT_TYPE
from headlab.shrink.gguf_file import groups_removed as groups_removed
from headlab.shrink.gguf_folder import check_number_type as check_number_type
from headlab.shrink.gguf_folder import write_gguf_folder as write_gguf_folder
from headlab.shrink.model import Shrunk as Shrunk
from headlab.shrink.model import bytes_in as bytes_in
from headlab.shrink.model import check_dtype as check_dtype
from headlab.shrink.model import checkpoint_dtype as checkpoint_dtype
from headlab.shrink.model import dtype_to_write as dtype_to_write
from headlab.shrink.model import parameters_of as parameters_of
from headlab.shrink.model import require_family as require_family
from headlab.shrink.model import shrink_model as shrink_model
from headlab.shrink.players import shrink_players as shrink_players
from headlab.shrink.proof import ExportRecord as ExportRecord
from headlab.shrink.proof import Inputs as Inputs
from headlab.shrink.proof import MeansOf as MeansOf
from headlab.shrink.proof import PlayersRecord as PlayersRecord
from headlab.shrink.proof import ProofNumbers as ProofNumbers
from headlab.shrink.proof import Speed as Speed
from headlab.shrink.proof import removed_words as removed_words
from headlab.shrink.read_pieces import embedding_rows as embedding_rows
from headlab.shrink.read_pieces import has_embedding_rows as has_embedding_rows
from headlab.shrink.read_pieces import read_pieces as read_pieces
from headlab.shrink.silenced import check_silenceable as check_silenceable
from headlab.shrink.silenced import silence_model as silence_model
from headlab.shrink.smaller_vocabulary import ID_INPUTS as ID_INPUTS
from headlab.shrink.smaller_vocabulary import covered_batches as covered_batches
from headlab.shrink.smaller_vocabulary import cut_embeddings as cut_embeddings
from headlab.shrink.smaller_vocabulary import renumbered_batch as renumbered_batch
from headlab.shrink.smaller_vocabulary import tensors_by_token as tensors_by_token
from headlab.shrink.smaller_vocabulary import with_vocabulary as with_vocabulary
from headlab.shrink.vocabulary_cut import SmallerVocabulary as SmallerVocabulary
from headlab.shrink.vocabulary_cut import VocabularyCut as VocabularyCut
from headlab.shrink.vocabulary_texts import collect_texts as collect_texts
from headlab.shrink.vocabulary_texts import cut_by_task as cut_by_task
from headlab.shrink.vocabulary_texts import cut_by_texts as cut_by_texts
from headlab.shrink.vocabulary_texts import held_out_examples as held_out_examples
from headlab.shrink.vocabulary_texts import sentences_of as sentences_of
