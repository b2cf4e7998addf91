"""Training a Marian-style translation model from scratch.

Vocabulary, sentences, weights; heads may be off from the start.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerBase

from headlab.core import (
    HeadlabError,
    Ints,
    JsonObject,
    JsonRecord,
    content_key,
    first_line,
    timed_pass,
)
from headlab.evaluation import NO_TARGET, decoder_inputs_of
from headlab.hooks import Model, gated_in_this_thread, make_gateable
from headlab.masks import Mask
from headlab.models import Checkpoint, building_alone, checkpoint_beside
from headlab.tasks import Example
from headlab.training.options import FinetuneStep, TranslationOptions, batches_per_epoch, epoch
from headlab.training.output import (
    LIBRARIES,
    check_out,
    how_it_went,
    versions_of,
    whole_output,
    write_folder,
)
from headlab.training.steps import (
    CHECKPOINT_SHARE,
    Encoded,
    ExampleSteps,
    State,
    StateSaver,
    fits_in_memory,
    own_randomness,
    retry_with_fewer_rows,
    torch_seed,
    trained_parameters,
)

# A word-piece vocabulary learned from sentences, and the Marian tokenizer that uses it.

END = "</s>"
UNKNOWN = "<unk>"
PADDING = "<pad>"
SOURCE = "source.spm"
TARGET = "target.spm"
VOCABULARY = "vocab.json"


def check_pieces() -> None:
    """Raise HeadlabError if sentencepiece, which makes vocabularies, is not installed."""
    try:
        import sentencepiece  # noqa: F401
    except ImportError as error:
        raise HeadlabError(
            "vocabularies are made by the package sentencepiece, which is not installed; pip install "
            "'headlab[translation]'",
            code="package.sentencepiece_missing",
        ) from error


class NoVocabulary(HeadlabError):
    """No vocabulary of this size can be made.

    There are too few sentences for it, or more characters than entries.
    """

    def __init__(self, size: int, reason: str, do: str) -> None:
        super().__init__(
            f"no vocabulary of {size} pieces can be made from these sentences ({reason}); {do}",
            code="vocabulary.not_made",
        )
        self.size = size
        self.why = reason


def train_piece_model(sentences: Iterable[str], size: int) -> bytes:
    """Train a SentencePiece model of at most `size` pieces; the bytes of its file.

    It is a unigram language model (Kudo 2018), equal for equal sentences. Ids follow Marian: 0 ends
    a text, 1 is unknown.

    Raises:
        HeadlabError: sentencepiece is not installed, or can make no vocabulary from the sentences.
    """
    check_pieces()
    import sentencepiece

    model_file = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model_file,
            vocab_size=size,
            model_type="unigram",
            character_coverage=1.0,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=3,
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            pad_id=-1,
            eos_piece=END,
            unk_piece=UNKNOWN,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise NoVocabulary(
            size, first_line(error), "give more of them, or another size with vocabulary=N"
        ) from error
    return model_file.getvalue()


def marian_tokenizer(
    piece_model: bytes, pair: str, max_length: int, folder: Path
) -> PreTrainedTokenizerBase:
    """Marian's tokenizer with one vocabulary for both sides; the padding has the last id.

    Args:
        pair: Like en-de.
        folder: For its files; it must exist as long as the tokenizer.
    """
    import sentencepiece
    from transformers import MarianTokenizer

    processor = sentencepiece.SentencePieceProcessor(model_proto=piece_model)
    ids = {processor.id_to_piece(i): i for i in range(len(processor))} | {PADDING: len(processor)}
    for name in (SOURCE, TARGET):
        (folder / name).write_bytes(piece_model)
    (folder / VOCABULARY).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    source, _, target = pair.partition("-")
    with building_alone():
        return MarianTokenizer(
            str(folder / SOURCE),
            str(folder / TARGET),
            str(folder / VOCABULARY),
            source_lang=source,
            target_lang=target or None,
            model_max_length=max_length,
            eos_token=END,
            unk_token=UNKNOWN,
            pad_token=PADDING,
        )


# Sentences with their translations as token ids, and their loss.


@dataclass(frozen=True)
class SentencePairs(Encoded):
    """Sources and targets, tokenised once.

    Attributes:
        start, padding: Tokens that start and pad a decoder input.
        smoothing: Share of each target's weight that is spread over the whole vocabulary (Szegedy
            et al. 2016, section 7).
    """

    start: int = 0
    padding: int = 0
    smoothing: float = 0.0

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of every source with its target."""
        return [
            len(source) + len(target)
            for source, target in zip(self.tokens["input_ids"], self.targets, strict=True)
        ]

    def inputs(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """Sources, and targets shifted right by one place.

        No real token attends past a target's end.
        """
        decoder_inputs = decoder_inputs_of(self.labels(rows, device), self.start, self.padding)
        return super().inputs(rows, device) | {"decoder_input_ids": decoder_inputs}

    def loss(self, logits: torch.Tensor, rows: Ints) -> torch.Tensor:
        """Cross-entropy of the smoothed targets, summed over all target tokens of the rows, nats.

        Args:
            logits: [row, token, vocabulary].
            rows: Indices of examples, int [row].
        """
        targets = self.labels(rows, logits.device)
        return cross_entropy(
            logits.flatten(0, 1),
            targets.flatten(),
            ignore_index=NO_TARGET,
            reduction="sum",
            label_smoothing=self.smoothing,
        )


def encode_sentences(
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    max_length: int,
    smoothing: float,
) -> SentencePairs:
    """Sources and targets as tokens; those beyond `max_length` of each are left out."""
    sources = tokenizer([e.text for e in examples], truncation=True, max_length=max_length)
    targets = tokenizer(
        text_target=[e.target or "" for e in examples], truncation=True, max_length=max_length
    )
    source_inputs = {name: sources[name] for name in ("input_ids", "attention_mask")}
    padding = int(tokenizer.pad_token_id)
    return SentencePairs(
        tokenizer,
        source_inputs,
        targets["input_ids"],
        words=False,
        start=padding,  # Marian starts a decoder input with the padding
        padding=padding,
        smoothing=smoothing,
    )


def check_sentences(examples: Sequence[Example]) -> None:
    """Raise HeadlabError unless there are examples, each with a target."""
    if not examples:
        raise HeadlabError(
            "given no sentences; give a train split, mt/PAIR.train.tsv below the data folder",
            code="training.no_sentences",
        )
    if any(e.target is None for e in examples):
        raise HeadlabError(
            "the task has labels, not texts to be generated; train translation takes a translation task",
            code="training.task_not_generating",
        )


# Training a Marian-style model from scratch: vocabulary, weights, heads that may be off from the
# start.

Measure = Callable[[Model], JsonRecord]


def train_translation(
    examples: Sequence[Example],
    *,
    pair: str,
    out: Path,
    options: TranslationOptions | None = None,
    mask: Mask | None = None,
    device: str = "cpu",
    checkpoint_every: int = 20,
    checkpoint_share: float = CHECKPOINT_SHARE,
    progress: Callable[[FinetuneStep], None] | None = None,
    measure: Measure | None = None,
) -> Path:
    """Train and write the folder `out`, which transformers and `headlab.load` read; returns `out`.

    Checkpoints, resuming and determinism are as in `headlab.training.finetune.finetune`.

    Raises HeadlabError for options, sentences or a mask that do not fit.

    Args:
        examples: Sources with targets; the vocabulary is made from both sides.
        pair: Like en-de.
        mask: Its removed heads are off from the first step, and their output is 0 in the folder's
            weights, so that no mask is needed later.
        measure: Called at the end with the model; what it returns is recorded.
    """
    options = options or TranslationOptions()
    options.check()
    check_out(out)
    check_sentences(examples)
    torch_device = torch.device(device)
    piece_model = train_piece_model(
        (text for e in examples for text in (e.text, e.target or "")), options.vocabulary
    )
    facts = _training_facts(examples, pair, options, mask, piece_model)
    key = content_key(facts)
    saver = StateSaver(checkpoint_beside(out, key), key, checkpoint_every, checkpoint_share)
    with TemporaryDirectory() as folder, own_randomness(torch_device):
        tokenizer = marian_tokenizer(piece_model, pair, options.max_length, Path(folder))
        model = new_model(tokenizer, options, torch_device)
        sentences = encode_sentences(tokenizer, examples, options.max_length, options.smoothing)
        state = new_state(model, options)
        with without_heads(model, mask):
            ExampleSteps(model.module, sentences, options, state).run(saver, progress)
        freeze_without_heads(model, mask)
        record = {
            **facts,
            **_record(model, state, device),
            "example_forwards": forwards(sentences.lengths, options),
            "measured": dict(measure(model)) if measure else {},
        }
        write_folder(out, whole_output(model.module, model.tokenizer), record)
    saver.path.unlink(missing_ok=True)
    return out


def new_model(
    tokenizer: PreTrainedTokenizerBase, options: TranslationOptions, device: torch.device
) -> Model:
    """A model with weights drawn from the seed, its heads located and self-tested."""
    padding = int(tokenizer.pad_token_id)
    config = config_of(options, len(tokenizer), padding, int(tokenizer.eos_token_id))
    with building_alone():
        torch.manual_seed(torch_seed(options.seed))
        module = MarianMTModel(config)
    module.generation_config = GenerationConfig(
        max_length=options.max_length,
        num_beams=1,
        bad_words_ids=[[padding]],
        pad_token_id=padding,
        decoder_start_token_id=padding,
        eos_token_id=config.eos_token_id,
        forced_eos_token_id=config.eos_token_id,
    )
    torch.nn.Module.to(module, device)
    return make_gateable(Checkpoint("trained from scratch", "training", "", module, tokenizer))


def config_of(options: TranslationOptions, vocabulary: int, padding: int, end: int) -> MarianConfig:
    """The model's configuration.

    Args:
        options: Of the training.
        vocabulary: Number of tokens.
        padding: The token that pads a text and starts a translation.
        end: The token that ends a text.
    """
    return MarianConfig(
        vocab_size=vocabulary,
        pad_token_id=padding,
        decoder_start_token_id=padding,
        eos_token_id=end,
        forced_eos_token_id=end,
        max_position_embeddings=512,
        d_model=options.width,
        scale_embedding=True,
        activation_function="relu",
        encoder_layers=options.encoder_layers,
        encoder_attention_heads=options.encoder_heads,
        decoder_layers=options.decoder_layers,
        decoder_attention_heads=options.decoder_heads,
        encoder_ffn_dim=options.feed_forward,
        decoder_ffn_dim=options.feed_forward,
        dropout=options.dropout,
        init_std=options.width**-0.5,
    )


def seconds_a_sentence(options: TranslationOptions, tokens: int, device: str) -> float:
    """How long a sentence of a training step takes now, forward and back, on made-up tokens.

    Args:
        options: Of the training; a model of these sizes is made for this alone.
        tokens: Of a source and of a target.
        device: Where it is trained.

    Returns:
        Seconds of one sentence.

    Raises:
        HeadlabError: The model, or a step on a single sentence, does not fit in memory.
    """
    torch_device = torch.device(device)
    padding = options.vocabulary
    with own_randomness(torch_device):
        with (
            building_alone(),
            fits_in_memory("the model does", "train a model of less width or fewer layers"),
        ):
            module = MarianMTModel(config_of(options, options.vocabulary + 1, padding, end=0))
            torch.nn.Module.to(module, torch_device)
        module.train(True)
        parameters = trained_parameters(module)
        state = State(parameters, AdamW(parameters.values(), lr=options.learning_rate))

        def time_step(rows: int) -> float:
            ids = torch.randint(options.vocabulary, (rows, tokens), device=torch_device)

            def step() -> None:
                logits = module(input_ids=ids, decoder_input_ids=ids).logits
                cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
                state.optimizer.step()

            return timed_pass(step, torch_device) / rows

        return retry_with_fewer_rows(state, options.micro_batch or options.batch, time_step)


def new_state(model: Model, options: TranslationOptions) -> State:
    """The trainable parameters in name order, and an optimizer for them.

    As in Vaswani et al. (2017), section 5.3.
    """
    parameters = trained_parameters(model.module)
    optimizer = AdamW(
        parameters.values(),
        lr=options.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=options.weight_decay,
    )
    return State(parameters, optimizer)


@contextmanager
def without_heads(model: Model, mask: Mask | None) -> Iterator[None]:
    """Run the block with a mask's heads removed.

    Raises HeadlabError if the mask has another shape.
    """
    check_mask(model, mask)
    # The mask of another model is accepted here: the same architecture, trained from scratch.
    with (
        nullcontext() if mask is None else gated_in_this_thread(model, model.grid.gates(mask.kept))
    ):
        yield


def check_mask(model: Model, mask: Mask | None) -> None:
    """Raise HeadlabError if a mask has another shape; a mask made for another model is accepted."""
    if mask is not None and mask.grid != model.grid:
        raise HeadlabError(
            f"the mask is for a model with {mask.grid}; the one to be trained has {model.grid}. Give the options the "
            "same layers and heads",
            code="mask.other_grid",
        )


@torch.no_grad()
def freeze_without_heads(model: Model, mask: Mask | None) -> None:
    """Freeze the model in evaluation mode.

    Output weights of removed heads become 0, as with a closed gate.
    """
    model.module.requires_grad_(False).eval()
    heads = [n for stack in model.grid.stacks for n in stack.heads]
    for row, head in [] if mask is None else model.grid.flat[~mask.kept]:
        weight = cast("torch.Tensor", model.projections[row].weight)
        head_width = weight.shape[1] // heads[row]
        weight[:, head * head_width : (head + 1) * head_width] = 0


def forwards(lengths: Sequence[int], options: TranslationOptions) -> int:
    """Number of examples run through the model over all steps."""
    whole_epochs, other_batches = divmod(
        options.steps, batches_per_epoch(len(lengths), options.batch)
    )
    last_batches = epoch(
        lengths, options.batch, np.random.default_rng((options.seed, whole_epochs))
    )[:other_batches]
    return whole_epochs * len(lengths) + sum(map(len, last_batches))


def _training_facts(
    examples: Sequence[Example],
    pair: str,
    options: TranslationOptions,
    mask: Mask | None,
    piece_model: bytes,
) -> JsonObject:
    """Everything the weights depend on, ready for JSON."""
    data = content_key([[e.text, e.target] for e in examples])
    return {
        "kind": "translation",
        "pair": pair,
        "options": dict(options.record()),
        "data": {"examples": len(examples), "sha256": data},
        "vocabulary": {"sha256": hashlib.sha256(piece_model).hexdigest()},
        "removed": [list(head) for head in mask.removed] if mask is not None else [],
    }


def _record(model: Model, state: State, device: str) -> JsonObject:
    """Facts of the finished training, ready for JSON."""
    libraries = (*(name for name in LIBRARIES if name != "peft"), "sentencepiece")
    return {
        "heads": model.grid.to_json(),
        "parameters": sum(p.numel() for p in state.parameters.values()),
        "tokens": model.module.config.get_text_config().vocab_size,
        **how_it_went(state, device),
        "versions": versions_of(libraries),
    }
