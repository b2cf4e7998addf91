"""Small tasks of lm-evaluation-harness, and what its own model class makes of them, recorded.

    python tests/support/harness_tasks.py    write tests/golden/harness.json

It needs lm-eval and SmolLM2 (requirements-soak.txt, requirements-decoder.txt). The numbers are
those of the harness's `HFLM`, not of `headlab.evaluation.lm_eval`; heads are switched off by
`headlab.gated`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).parents[1] / "golden" / "harness.json"
MODEL = "smollm2-135m"
ENDINGS = {
    "The capital of France is": "Paris",
    "Two plus two makes": "four",
    "The sun rises in the": "east",
    "A cat sat on the": "mat",
    "Water boils at a hundred": "degrees",
    "She opened the": "door",
    "My favourite colour is": "blue",
    "The opposite of hot is": "cold",
    "He drank a glass of": "water",
    "Birds can": "fly",
    "The sky is": "blue",
    "I live in a": "house",
}
# A task's own metrics: "even_nats" is missing for some documents, "spread" is aggregated over all
# documents at once.
OWN_PYTHON = """
def process(doc, results):
    values = {"spread": (doc["number"], results[0][0])}
    if doc["number"] % 2 == 0:
        values["even_nats"] = results[0][0]
    return values


def largest(items):
    return max(value for _, value in items) - min(value for _, value in items)
"""
TASKS = {
    "mini_lambada": """
output_type: loglikelihood
doc_to_text: '{{text}}'
doc_to_target: ' {{ending}}'
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "mini_choices": """
output_type: multiple_choice
doc_to_text: '{{text}}'
doc_to_choice: '{{[ending, "zebra", "under"]}}'
doc_to_target: 0
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}, {metric: brier_score}, {metric: acc_mutual_info}]
""",
    "mini_classes": """
output_type: multiple_choice
doc_to_text: '{{text}}'
doc_to_choice: [good, bad]
doc_to_target: '{{number % 2}}'
metric_list: [{metric: f1}, {metric: mcc}, {metric: acc}]
""",
    "mini_filters": """
output_type: generate_until
doc_to_text: '{{text}}'
doc_to_target: '{{ending}}'
generation_kwargs: {until: ['.'], max_gen_toks: 6, do_sample: false}
metric_list: [{metric: exact_match}]
filter_list:
- {name: first-word, filter: [{function: regex, regex_pattern: '(\\w+)'}, {function: take_first}]}
- {name: never, filter: [{function: regex, regex_pattern: '(@@@)'}, {function: take_first}]}
""",
    "mini_repeats": """
output_type: generate_until
doc_to_text: '{{text}}'
doc_to_target: '{{ending}}'
repeats: 3
generation_kwargs: {until: ['.'], max_new_tokens: 3}
metric_list: [{metric: exact_match}]
filter_list:
- {name: votes, filter: [{function: regex, regex_pattern: '(\\w+)'}, {function: majority_vote}, {function: take_first}]}
- {name: first, filter: [{function: regex, regex_pattern: '(\\w+)'}, {function: take_first}]}
""",
    "mini_corpus": """
output_type: generate_until
doc_to_text: '{{text}}'
doc_to_target: ' {{ending}}. It is a very good one'
generation_kwargs: {until: ["\\n"], max_gen_toks: 10}
metric_list: [{metric: bleu}, {metric: chrf}, {metric: ter}]
""",
    "mini_rolling": """
output_type: loglikelihood_rolling
doc_to_text: ''
doc_to_target: '{{text}} {{ending}}'
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "mini_own": """
output_type: loglikelihood
doc_to_text: '{{text}}'
doc_to_target: ' {{ending}}'
process_results: !function own.process
metric_list:
- {metric: spread, aggregation: !function own.largest, higher_is_better: false}
- {metric: even_nats, aggregation: mean, higher_is_better: true}
""",
}
GROUPS = {
    "mini_equal": (
        "task: [mini_choices, mini_classes]\n"
        "aggregate_metric_list: [{metric: acc, weight_by_size: false}]\n"
    ),
    "mini_by_size": (
        "task: [mini_lambada]\naggregate_metric_list: [{metric: acc}, {metric: perplexity}]\n"
    ),
}
NAMES = [*GROUPS, "mini_filters", "mini_repeats", "mini_corpus", "mini_rolling", "mini_own"]


def save_tasks(folder: Path) -> None:
    """Write all tasks and groups into a folder, as the harness reads them."""
    rows = []
    for number, (text, ending) in enumerate(ENDINGS.items()):
        rows.append(json.dumps({"text": text, "ending": ending, "number": number}))
    (folder / "rows.jsonl").write_text("\n".join(rows), "utf-8")
    (folder / "own.py").write_text(OWN_PYTHON, "utf-8")
    data = (
        "dataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}}}\n"
        "test_split: test\n"
    )
    for name, description in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{data}{description}", "utf-8")
    for name, description in GROUPS.items():
        (folder / f"{name}.yaml").write_text(f"group: {name}\n{description}", "utf-8")


def kept_heads_of_mask(size: int) -> np.ndarray:
    """The heads that the recorded mask keeps, bool [head]."""
    is_kept = np.ones(size, bool)
    is_kept[::7] = False
    return is_kept


def harness_results(model: Any, folder: Path, heads_on: np.ndarray | None = None) -> dict[str, Any]:
    """What the harness's own model class gives on all tasks, as one run of the record.

    Args:
        model: A headlab model.
        folder: Holds the tasks.
        heads_on: The heads that are on, bool [head]; None for all.
    """
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    from headlab.evaluation.lm_eval import LoadedTasks
    from headlab.hooks import gated

    manager = LoadedTasks(include_path=str(folder))
    dtype = str(model.module.dtype).removeprefix("torch.")
    harness_model = HFLM(
        pretrained=model.module, tokenizer=model.tokenizer, batch_size=1, device="cpu", dtype=dtype
    )
    if heads_on is None:
        heads_on = np.ones(model.grid.size, bool)
    with gated(model, model.grid.gates(heads_on)):
        results = lm_eval.simple_evaluate(
            model=harness_model, tasks=list(NAMES), task_manager=manager, bootstrap_iters=0
        )
    samples = {}
    for task, documents in results["samples"].items():
        samples[task] = []
        for document in documents:
            fields = ("doc_id", "filter", "metrics", *document["metrics"])
            samples[task].append({name: document[name] for name in fields})
    groups = {}
    for name, group in manager.task_groups().items():
        groups[name] = {"tasks": group.tasks, "by_size": group.by_size}
    return {
        "results": {
            "results": results["results"],
            "higher_is_better": results["higher_is_better"],
            "samples": samples,
        },
        "aggregations": manager.aggregations(),
        "groups": groups,
    }


def json_value(value: Any) -> Any:
    """A number or array of numpy as JSON has it."""
    return value.tolist()


def main() -> None:
    """Record the harness's results without and with the mask."""
    import tempfile

    import headlab

    model = headlab.load(MODEL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_tasks(folder)
        baseline_run = harness_results(model, folder)
        masked_run = harness_results(model, folder, kept_heads_of_mask(model.grid.size))
    runs = [baseline_run, masked_run]
    text = json.dumps(runs, indent=1, sort_keys=True, default=json_value)
    RECORD.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
