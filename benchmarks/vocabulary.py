"""What a vocabulary of few languages gives: parameters, file, memory, time, accuracy on test.

    python benchmarks/vocabulary.py --data DIR --xnli MODEL
    python benchmarks/vocabulary.py --smoke        the embedded classifier, few examples; writes nothing

e5-small on `intents`, and on XNLI where its data and a model are at hand, for German and Thai;
SmolLM2 for English (`make decoder`). Each export is a command of its own, as a user types it.
Memory is what a process holds that has loaded the folder and asked it once. Times are ratios in one
run, on test texts, each model with its own tokenizer. `on_xnli` counts what texts of XNLI lose,
which were not used for the cut of the model of `intents`. Figures are written to
results/vocabulary.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from machine import commit, machine_facts, write_json  # noqa: E402 - after the path to it

import headlab  # noqa: E402
from headlab.hooks import Model  # noqa: E402
from headlab.studies.savings_run import latency_ratio  # noqa: E402

RESULT_FILE = ROOT / "benchmarks" / "results" / "vocabulary.json"
BATCH_SIZES = (1, 32)
TIMED_EXAMPLES = 32
ROUNDS = 15
SMOKE_EXAMPLES = 20
KEPT_FIELDS = (
    "parameters_before",
    "parameters_after",
    "pieces_before",
    "pieces_after",
    "bytes_before",
    "bytes_after",
    "max_logit_difference",
    "examples",
    "pieces_lost",
    "texts_changed",
    "accuracy",
)
"""Of the outcome of an export."""
# A process that loads a model, asks it once, and says its resident memory in KiB.
RESIDENT = """
import gc, re, sys, torch, headlab
model = headlab.load(sys.argv[1], device="cpu")
with torch.inference_mode():
    model.module(**model.tokenizer("A sentence.", return_tensors="pt"))
gc.collect()
print(re.search(r"VmRSS:\\s*(\\d+)", open("/proc/self/status").read())[1])
"""


@dataclass(frozen=True)
class Case:
    """A model and the languages that it is cut to.

    Attributes:
        name: In the figures.
        model: Its name or folder.
        languages: Codes.
        arguments: Further ones of its export.
    """

    name: str
    model: str
    languages: tuple[str, ...]
    arguments: tuple[str, ...]


def cases(data: Path | None, xnli_model: Path | None, *, is_smoke: bool) -> list[Case]:
    """What is measured, as far as it is at hand."""
    limit = ("--test-size", str(SMOKE_EXAMPLES)) if is_smoke else ()
    all_cases = [Case("e5-small, intents", "e5-small-intents", ("de", "th"), limit)]
    if is_smoke:
        return all_cases
    if data is not None and xnli_model is not None:
        on_xnli = ("--task", "xnli", "--data", str(data))
        all_cases.append(Case("e5-small, XNLI", str(xnli_model), ("de", "th"), on_xnli))
    all_cases.append(
        Case("SmolLM2, sentences of intents", "smollm2-135m", ("en",), ("--size", "32"))
    )
    return all_cases


def process_output(words: Sequence[str]) -> str:
    """Standard output of a process of Python; ends the benchmark where it fails."""
    process = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    if process.returncode != 0:
        sys.exit(process.stderr)
    return process.stdout


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """All figures of a case.

    Args:
        case: The model and its languages.
        folder: To write the smaller model to.
    """
    started_at = time.perf_counter()
    words = ["-m", "headlab.cli", "export", "--model", case.model, "--as", "small", "--json"]
    words += ["--languages", ",".join(case.languages), "--out", str(folder), *case.arguments]
    outcome = json.loads(process_output(words))
    seconds = time.perf_counter() - started_at
    before = headlab.load(case.model, device="cpu")
    after = headlab.load(str(folder), device="cpu")
    return {
        "languages": list(case.languages),
        "export_seconds": seconds,
        **{name: outcome[name] for name in KEPT_FIELDS},
        "resident_mib": {
            name: int(process_output(["-c", RESIDENT, model])) / 1024
            for name, model in (("before", case.model), ("after", str(folder)))
        },
        "time_ratio": {
            str(rows): time_ratio(before, after, case.languages, rows) for rows in BATCH_SIZES
        },
    }


def time_ratio(before: Model, after: Model, languages: Sequence[str], rows: int) -> dict[str, Any]:
    """Time of the smaller model over the original's, on test texts of the languages.

    Args:
        before: The original.
        after: The smaller model.
        languages: Codes.
        rows: Texts of a batch.
    """
    task = headlab.task("intents")
    texts = [
        example.text
        for language in languages
        for example in task.examples(language, "test", TIMED_EXAMPLES // len(languages))
    ]
    batches = [texts[start : start + rows] for start in range(0, len(texts), rows)]
    inputs = [
        [dict(model.tokenizer(batch, padding=True, return_tensors="pt")) for batch in batches]
        for model in (before, after)
    ]
    ratio = latency_ratio(
        before.module, after.module, inputs[0], inputs_after=inputs[1], repeats=ROUNDS
    )
    return {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high}


def losses_on_xnli(folder: Path, data: Path) -> dict[str, float]:
    """Share of the pieces of XNLI's test texts that the written tokenizer lacks, by language."""
    from transformers import AutoTokenizer

    original = headlab.load("e5-small-intents", device="cpu").tokenizer
    kept_pieces = set(AutoTokenizer.from_pretrained(folder).get_vocab())
    task = headlab.task("xnli", data=data)
    shares: dict[str, float] = {}
    for language in ("de", "th"):
        pieces: list[str] = []
        for example in task.examples(language, "test"):
            pieces += original.tokenize(example.text) + original.tokenize(example.pair or "")
        shares[language] = sum(piece not in kept_pieces for piece in pieces) / len(pieces)
    return shares


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with xnli/")
    parser.add_argument("--xnli", type=Path, help="folder of a model fine-tuned on XNLI")
    parser.add_argument("--smoke", action="store_true", help="few examples; writes nothing")
    arguments = parser.parse_args()
    machine = machine_facts()
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as parent:
        for case in cases(arguments.data, arguments.xnli, is_smoke=arguments.smoke):
            folder = Path(parent) / case.name.replace(" ", "-")
            rows[case.name] = measured(case, folder)
            if case.model == "e5-small-intents" and arguments.data is not None:
                rows[case.name]["on_xnli"] = losses_on_xnli(folder, arguments.data)
            print(case.name, json.dumps(rows[case.name]), flush=True)
    figures = {
        "command": "python benchmarks/vocabulary.py --data DIR --xnli MODEL",
        "commit": commit(),
        "machine": machine,
        "rounds": ROUNDS,
        "models": rows,
    }
    if not arguments.smoke:
        write_json(RESULT_FILE, figures)


if __name__ == "__main__":
    main()
