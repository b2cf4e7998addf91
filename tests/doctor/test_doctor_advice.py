"""What the doctor says of transformers 5, against the transformers that is installed."""

from __future__ import annotations

import inspect
import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from support.saved_models import letter_tokenizer, save_classifier
from support.tiny_models import SMALL_OPTIONS

import headlab
from headlab.cli.run import main
from headlab.doctor import ADVICE
from headlab.doctor.python_source import (
    ATTENTION_MASK_METHODS,
    HOME_OF_MOVED,
    MASK_METHODS,
    MASK_NAMES,
    METHODS,
    MOVED_FUNCTIONS,
    PRUNING_METHODS,
    REMOVED_FUNCTIONS,
)

IDS = torch.tensor([[5, 6, 7, 8]])
HEAD_MASK = torch.zeros(2, 3)
WITHOUT_A_WORD = "without a word"
DECODER_OPTIONS = {"n_embd": 12, "n_layer": 2, "n_head": 3, "vocab_size": 99, "n_positions": 32}
BART_OPTIONS: dict[str, Any] = {
    f"{stack}_{name}": value
    for stack in ("encoder", "decoder")
    for name, value in (("layers", 2), ("attention_heads", 3), ("ffn_dim", 16))
} | {"d_model": 12, "vocab_size": 99, "max_position_embeddings": 32}
T5_OPTIONS = {"d_model": 12, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 3}


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """Tiny models by the names that the advice gives them."""
    bert_config = hf.BertConfig(**SMALL_OPTIONS)
    modules = {
        "BERT": hf.BertModel(bert_config),
        "BERT classifier": hf.BertForSequenceClassification(bert_config),
        "BERT tagger": hf.BertForTokenClassification(bert_config),
        "DistilBERT": hf.DistilBertModel(
            hf.DistilBertConfig(dim=12, n_layers=2, n_heads=3, hidden_dim=16, vocab_size=99)
        ),
        "GPT-2": hf.GPT2LMHeadModel(hf.GPT2Config(**DECODER_OPTIONS)),
        "Llama": hf.LlamaForCausalLM(hf.LlamaConfig(**SMALL_OPTIONS)),
        "T5": hf.T5ForConditionalGeneration(
            hf.T5Config(**T5_OPTIONS, vocab_size=99, decoder_start_token_id=0)
        ),
        "BART": hf.BartForConditionalGeneration(hf.BartConfig(**BART_OPTIONS)),
    }
    return {name: module.eval() for name, module in modules.items()}


def inputs_of(name: str) -> dict[str, torch.Tensor]:
    return {"input_ids": IDS} | ({"decoder_input_ids": IDS} if name in ("T5", "BART") else {})


@torch.no_grad()
def test_masks_by_name_are_dropped_without_a_word(
    models: dict[str, Any], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, model in models.items():
        argument_names = MASK_NAMES if name in ("T5", "BART") else {"head_mask"}
        expected = model(**inputs_of(name))[0]
        capfd.readouterr()
        for argument_name in argument_names:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                answers = model(**inputs_of(name), **{argument_name: HEAD_MASK})[0]
            torch.testing.assert_close(answers, expected, rtol=0, atol=0)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
    for kind in ("mask-keyword", "mask-key"):
        assert WITHOUT_A_WORD in ADVICE[kind].does


def test_nearly_every_forward_takes_what_it_does_not_know() -> None:
    mappings = import_module("transformers.models.auto.modeling_auto")
    names: set[str] = set()
    for attribute, mapping in vars(mappings).items():
        if attribute.startswith("MODEL") and attribute.endswith("MAPPING_NAMES"):
            for value in mapping.values():
                names.update([value] if isinstance(value, str) else value)
    strict: set[str] = set()
    for name in sorted(names):
        if name.startswith(("Bert", "GPT2", "Llama", "T5", "Bart", "Bark", "Encodec", "Roberta")):
            parameters = inspect.signature(getattr(hf, name).forward).parameters.values()
            assert not any("head_mask" in parameter.name for parameter in parameters), name
            if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in parameters):
                strict.add(name.removesuffix("Model"))
    assert strict == {"Bark", "Encodec"}
    assert all(name in ADVICE["mask-keyword"].does for name in strict)


def test_generate_refuses_a_mask(models: dict[str, Any]) -> None:
    for name in ("GPT-2", "Llama", "T5", "BART"):
        with pytest.raises(ValueError, match="`model_kwargs` are not used by the model"):
            models[name].generate(IDS, max_new_tokens=1, head_mask=HEAD_MASK)
    assert "`model_kwargs` that are not used by the model" in ADVICE["mask-generate"].does
    assert "ValueError" in ADVICE["mask-key"].does


@pytest.mark.parametrize(
    ("task", "name", "error"),
    [
        ("text-classification", "BERT classifier", None),
        ("feature-extraction", "BERT", None),
        ("text-generation", "GPT-2", ValueError),
        ("token-classification", "BERT tagger", TypeError),
    ],
)
def test_pipelines_drop_or_refuse_a_mask(
    models: dict[str, Any], task: Any, name: str, error: type[Exception] | None
) -> None:
    pipe = hf.pipeline(task, model=models[name], tokenizer=letter_tokenizer(), device="cpu")
    words = ADVICE["mask-pipeline"].does
    assert task in words
    if error is None:
        before = np.concatenate([np.ravel(_numbers(pipe("abc")))])
        after = np.concatenate([np.ravel(_numbers(pipe("abc", head_mask=HEAD_MASK)))])
        np.testing.assert_array_equal(after, before)
    else:
        assert error.__name__ in words
        with pytest.raises(error):
            pipe("abc", head_mask=HEAD_MASK)


def _numbers(answers: Any) -> list[Any]:
    """The numbers of a pipeline's answers."""
    if isinstance(answers[0], dict):
        return [answer["score"] for answer in answers]
    return list(answers)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("BERT", (IDS, None, None, None, HEAD_MASK), ValueError),
        ("DistilBERT", (IDS, None, HEAD_MASK), ValueError),
        ("GPT-2", (IDS, None, None, None, None, HEAD_MASK), ValueError),
        ("T5", (IDS, None, IDS, None, HEAD_MASK), IndexError),
        ("BART", (IDS, None, IDS, None, HEAD_MASK), IndexError),
    ],
)
def test_a_mask_by_position_is_another_argument(
    models: dict[str, Any], name: str, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    words = ADVICE["mask-position"].does
    parameters = list(inspect.signature(models[name].forward).parameters)
    assert name in words
    assert parameters[len(arguments) - 1] in words
    assert error.__name__ in words
    with pytest.raises(error):
        models[name](*arguments)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_no_model_has_the_methods(models: dict[str, Any], method: str) -> None:
    for model in models.values():
        assert not any(hasattr(module, method) for module in model.modules())
    assert "False" in ADVICE["method-asked-for"].does
    kinds = ("prune-heads", "get-head-mask", "attention-mask")
    assert all("AttributeError" in ADVICE[kind].does for kind in kinds)
    assert METHODS == PRUNING_METHODS | MASK_METHODS | ATTENTION_MASK_METHODS


def test_the_other_way_to_make_attention_masks_is_there() -> None:
    masking = import_module("transformers.masking_utils")
    for name in ("create_bidirectional_mask", "create_causal_mask"):
        assert name in ADVICE["attention-mask"].instead
        assert callable(getattr(masking, name))


def test_nothing_calls_a_pruning_method_of_ones_own_and_no_model_reads_the_config(
    tmp_path: Path,
) -> None:
    calls = []

    class OwnModel(hf.BertModel):
        def _prune_heads(self, heads: Any) -> None:
            calls.append(heads)

    config = hf.BertConfig(**SMALL_OPTIONS, pruned_heads={0: [1]})
    assert config.pruned_heads == {0: [1]}
    model = OwnModel(config)
    model.save_pretrained(tmp_path)
    loaded = OwnModel.from_pretrained(tmp_path)
    assert calls == []
    size = SMALL_OPTIONS["hidden_size"]
    for built in (model, loaded):
        assert built.encoder.layer[0].attention.self.query.weight.shape == (size, size)
    for kind in ("config-keyword", "config-key", "config-set"):
        assert WITHOUT_A_WORD in ADVICE[kind].does
    assert "nothing calls it" in ADVICE["hook-defined"].does


def test_a_config_has_no_such_field_of_its_own() -> None:
    config = hf.BertConfig(**SMALL_OPTIONS)
    with pytest.raises(AttributeError):
        _ = config.pruned_heads
    assert ADVICE["config-read"].does.startswith("AttributeError")


def test_functions_are_gone_or_in_one_module() -> None:
    modules = [import_module(name) for name in (HOME_OF_MOVED, "transformers.modeling_utils")]
    for name in REMOVED_FUNCTIONS:
        assert not any(hasattr(module, name) for module in (*modules, hf))
    for name in MOVED_FUNCTIONS:
        assert [hasattr(module, name) for module in modules] == [True, False]
    assert HOME_OF_MOVED in ADVICE["function-moved"].instead


def test_checkpoints_with_pruned_heads_are_refused_or_whole(tmp_path: Path) -> None:
    words = ADVICE["checkpoint"].does
    model = hf.BertModel(hf.BertConfig(**SMALL_OPTIONS)).eval()
    model.save_pretrained(tmp_path)
    config_file = tmp_path / "config.json"
    config = json.loads(config_file.read_text()) | {"pruned_heads": {"0": [1]}}
    config_file.write_text(json.dumps(config))
    loaded = hf.BertModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS)[0], model(IDS)[0])
    assert "all heads are on" in words
    cut_query(tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError):
        hf.BertModel.from_pretrained(tmp_path)
    made_up = hf.BertModel.from_pretrained(tmp_path, ignore_mismatched_sizes=True)
    weight = made_up.encoder.layer[0].attention.self.query.weight
    assert weight.shape == model.encoder.layer[0].attention.self.query.weight.shape
    assert "RuntimeError" in words
    assert "ignore_mismatched_sizes=True" in words


def cut_query(file: Path) -> None:
    """Take a head's rows out of the first layer's queries, as transformers 4 saved them."""
    weights = load_file(file)
    (name,) = [name for name in weights if name.endswith("layer.0.attention.self.query.weight")]
    rows = SMALL_OPTIONS["hidden_size"] // SMALL_OPTIONS["num_attention_heads"]
    weights[name] = weights[name][rows:].clone()
    save_file(weights, file, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("model") / "tiny")


@torch.no_grad()
def test_what_to_write_instead_switches_heads_off(folder: Path) -> None:
    model = headlab.load(str(folder))
    head_mask = torch.ones(2, 3)
    head_mask[1, 2] = 0
    whole = model.module(input_ids=IDS)[0]
    with headlab.gated(model, head_mask):
        masked = model.module(input_ids=IDS)[0]
        pipe = hf.pipeline(
            "text-classification", model=model.module, tokenizer=letter_tokenizer(), device="cpu"
        )
        score_of_masked = pipe("abc")[0]["score"]
    assert not torch.allclose(masked, whole)
    assert pipe("abc")[0]["score"] != score_of_masked


def test_the_commands_that_are_named_take_what_they_are_given(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask_file = tmp_path / "mask.json"
    words = ["mask", "convert", "1:1,2", "--model", str(folder), "--out", str(mask_file)]
    assert main(words) == 0
    config = json.loads((folder / "config.json").read_text()) | {"pruned_heads": {"1": [1, 2]}}
    config_file = tmp_path / "config.json"
    config_file.write_text(json.dumps(config))
    words = ["mask", "convert", str(config_file), "--model", str(folder), "--out"]
    assert main([*words, str(tmp_path / "of-config.json")]) == 0
    masks = [headlab.load_mask(mask_file), headlab.load_mask(tmp_path / "of-config.json")]
    assert masks[0].removed == masks[1].removed
    assert len(masks[0].removed) == 2
    assert main(["mask", "snippet", str(mask_file), "--model", str(folder)]) == 0
    capsys.readouterr()
