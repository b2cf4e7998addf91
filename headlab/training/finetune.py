"""Fine-tuning a classifier of texts or words on one language.

All weights are trained, or a LoRA as for the embedded models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn
from torch.optim import AdamW
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headlab.core import Evaluation, HeadlabError, content_key
from headlab.evaluation import Evaluator
from headlab.hooks import Model, make_gateable
from headlab.models import Checkpoint, building_alone, checkpoint_beside
from headlab.tasks import DEV_SIZE, Example, Task
from headlab.training.options import FinetuneOptions, FinetuneStep
from headlab.training.output import (
    Base,
    TrainingOutput,
    adapter_output,
    changed_output,
    check_out,
    freeze,
    load_base,
    measured_record,
    training_record,
    whole_output,
    write_folder,
)
from headlab.training.steps import (
    CHECKPOINT_SHARE,
    Encoded,
    ExampleSteps,
    State,
    StateSaver,
    check_examples,
    encode,
    example_facts,
    own_randomness,
    torch_seed,
    trained_parameters,
)

# Accuracy of the new model on dev, in every language.

Tick = Callable[[str, int], None]


def on_dev(
    task: Task, size: int = DEV_SIZE, tick: Tick = lambda language, done: None
) -> Callable[[Model], dict[str, Evaluation]]:
    """A function that evaluates a model on dev and returns its evaluations by language.

    Raises HeadlabError at once, not after the training, if a language has no dev examples.

    Args:
        tick: Called between batches with the language and the number of its examples begun; may
            raise to stop.
    """
    for language in task.languages:
        task.examples(language, "dev", size)

    def measure(model: Model) -> dict[str, Evaluation]:
        return {
            language: _evaluate_language(model, task, language, size, tick)
            for language in task.languages
        }

    return measure


def _evaluate_language(
    model: Model, task: Task, language: str, size: int, tick: Tick
) -> Evaluation:
    # one pass: no layer inputs worth caching
    evaluator = Evaluator(model, task, language, "dev", size, state_bytes=0)
    evaluator.tick = lambda: tick(language, evaluator.forwards)
    tick(language, 0)
    return evaluator.evaluate()


Evaluate = Callable[[Model], Mapping[str, Evaluation]]
POOLER = "pooler"  # trained in full too: other bases come with a pooler of their own


def finetune(
    base: Base,
    examples: Sequence[Example],
    labels: Sequence[str],
    *,
    out: Path,
    options: FinetuneOptions | None = None,
    device: str = "cpu",
    checkpoint_every: int = 20,
    checkpoint_share: float = CHECKPOINT_SHARE,
    progress: Callable[[FinetuneStep], None] | None = None,
    evaluate: Evaluate | None = None,
) -> Path:
    """Train a classifier and write the folder `out`, replacing an earlier result; returns `out`.

    On the embedded base, a LoRA is stored as an adapter and full training as the changed weights;
    on other bases both are stored as a whole Hugging Face folder.

    Deterministic for a given seed, thread count and processor.

    Raises HeadlabError for unusable options, base or data.

    Args:
        checkpoint_every: Steps between two checkpoints, written to a file beside `out`; the same
            call resumes from it and ends with the same weights as an uninterrupted one.
        checkpoint_share: Share of the time that checkpoints may take; above it there are fewer.
        evaluate: Called at the end with the new model; the accuracies of what it returns are
            recorded.
    """
    options = options or FinetuneOptions()
    options.check()
    check_out(out)
    check_examples(examples, labels)
    place = torch.device(device)
    data = content_key(example_facts(examples, labels))
    words = bool(examples[0].words)
    with own_randomness(place):
        torch.manual_seed(torch_seed(options.seed))
        model, tokenizer = trainable(base, labels, words, options, place)
        base_module = model.get_base_model() if isinstance(model, PeftModel) else model
        module = cast("PreTrainedModel", base_module)
        examples_as_tokens = encode(tokenizer, module, examples, options.max_length)
        facts_of_run = {"options": options.record(), "data": data, "base": base.sha256}
        key = content_key(facts_of_run | examples_as_tokens.needs.version())
        saver = StateSaver(checkpoint_beside(out, key), key, checkpoint_every, checkpoint_share)
        state = new_state(model, options)
        ExampleSteps(model, examples_as_tokens, options, state).run(saver, progress)
        finished_module, output = finish_training(model, examples_as_tokens, state, base, labels)
        record = training_record(
            options, state, base=base, data=(len(examples), data), device=device
        )
        evaluations = evaluate(gateable(finished_module, tokenizer, base)) if evaluate else {}
    write_folder(out, output, record | measured_record(evaluations))
    saver.path.unlink(missing_ok=True)
    return out


def trainable(
    base: Base, labels: Sequence[str], words: bool, options: FinetuneOptions, device: torch.device
) -> tuple[PreTrainedModel | PeftModel, PreTrainedTokenizerBase]:
    """The base with a new classification head, set up for training; and its tokenizer.

    The head is drawn from torch's generator.
    """
    module, tokenizer = load_base(base, labels, words)
    if options.method == "full":
        freeze(module, options.freeze_embeddings, options.freeze_layers)
        torch.nn.Module.to(module, device)
        return module, tokenizer
    lora = LoraConfig(
        task_type="TOKEN_CLS" if words else "SEQ_CLS",
        r=options.rank,
        lora_alpha=options.alpha,
        target_modules=list(options.targets),
        modules_to_save=fully_trained_parts(module),
    )
    try:
        with building_alone():
            model = get_peft_model(module, lora)
    except ValueError as error:
        raise HeadlabError(
            f"targets {', '.join(options.targets)}: the base has no such layers ({error})",
            code="training.targets_unknown",
        ) from error
    return model.to(device), tokenizer


def fully_trained_parts(module: PreTrainedModel) -> list[str]:
    """Names of the parts trained in full beside the LoRA.

    The classification head, and a pooler if there is one.
    """
    names = [name for name, part in module.named_children() if any(True for _ in part.parameters())]
    poolers = [POOLER] if getattr(module.base_model, POOLER, None) is not None else []
    return [name for name in names if name != module.base_model_prefix] + poolers


def new_state(model: nn.Module, options: FinetuneOptions) -> State:
    """The trainable parameters in name order, and an AdamW over them."""
    parameters = trained_parameters(model)
    return State(
        parameters,
        AdamW(parameters.values(), lr=options.learning_rate, weight_decay=options.weight_decay),
    )


def finish_training(
    model: PreTrainedModel | PeftModel,
    encoded: Encoded,
    state: State,
    base: Base,
    labels: Sequence[str],
) -> tuple[PreTrainedModel, TrainingOutput]:
    """The trained model, merged and in evaluation mode, and what to write of it."""
    output = None
    if isinstance(model, PeftModel):
        output = adapter_output(model, labels, encoded.words, base.name) if base.embedded else None
        with building_alone():
            module: PreTrainedModel = model.merge_and_unload(safe_merge=True)
    else:
        module = model
        output = changed_output(module, state.parameters) if base.embedded else None
    module.requires_grad_(False)
    return module.eval(), output or whole_output(module, encoded.tokenizer, encoded.needs)


def gateable(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, base: Base) -> Model:
    """The module as a headlab Model, whose heads can be gated."""
    return make_gateable(Checkpoint(f"{base.name}, tuned", "training", "", module, tokenizer))
