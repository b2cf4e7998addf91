"""Who may read a shrunk model: headlab, and transformers once it knows the classes; every other class is refused."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys

import pytest
import torch
import transformers as hf
from huggingface_hub.errors import StrictDataclassError
from support.expected_errors import raises
from support.saved_models import save
from support.shrunk_families import logits, mask_of, model_of, uneven
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer
from transformers.models.auto import modeling_auto

from headlab.core import HeadlabError
from headlab.models.load import read_folder
from headlab.models.shrunk_classes import SENTENCE
from headlab.models.shrunk_cut import FAMILIES, cut_structure
from headlab.shrink import make_known, shrink_model

OF = {name: name for name in FAMILIES} | {"gpt2": "gpt2-lm", "llama": "llama-lm"}
# Upstream, these call their base model by another name than the rest of the family: they find none of its weights.
ELSEWHERE = {"LlamaForQuestionAnswering", "Qwen2ForQuestionAnswering", "Qwen3ForQuestionAnswering"}


SAYS = re.escape(SENTENCE)
OF_TEXTS = [
    f"AutoModelFor{what}"
    for what in (
        "CausalLM",
        "MaskedLM",
        "MultipleChoice",
        "NextSentencePrediction",
        "QuestionAnswering",
        "Seq2SeqLM",
        "SequenceClassification",
        "TextEncoding",
        "TokenClassification",
    )
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A shrunk model of every family, made when it is asked for: {family: (original, folder)}."""
    made = {}

    def of(family):
        if family not in made:
            model = model_of(OF[family], tiny_tokenizer(), dtype=torch.float32)
            folder = tmp_path_factory.mktemp("foreign") / family
            made[family] = (
                model,
                save(folder, shrink_model(model, uneven(model)).module, tiny_tokenizer()),
            )
        return made[family]

    return of


def classes_of(family):
    """All classes of a family that hold weights."""
    name = family.replace("-", "_")
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    found = [
        getattr(module, name) for name in module.__all__ if not name.endswith("PreTrainedModel")
    ]
    return [c for c in found if isinstance(c, type) and issubclass(c, hf.PreTrainedModel)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_class_of_the_family_called_by_its_name_refuses_it(family, folders):
    _, folder = folders(family)
    assert len(classes_of(family)) > 1
    for found in classes_of(family):
        with pytest.raises(StrictDataclassError, match=SAYS):
            found.from_pretrained(folder)


def kinds_of(autos):
    """Configurations of whole models that Auto classes know."""
    found = {kind for auto in autos for kind in getattr(modeling_auto, auto)._model_mapping}
    return [kind for kind in found if not kind.model_type.startswith("headlab")]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_configuration_of_another_model_of_texts_can_be_made_of_its_file(family, folders):
    _, folder = folders(family)
    kinds = kinds_of(OF_TEXTS)
    assert len(kinds) > 100
    for kind in kinds:
        with pytest.raises(Exception):  # noqa: B017, PT011 - each has checks of its own, and some want packages
            kind.from_pretrained(folder)


@pytest.mark.parametrize(
    "name",
    ["XLMRobertaModel", "RobertaModel", "ElectraModel", "LlamaForQuestionAnswering", "AlbertModel"],
)
def test_classes_of_other_families_say_who_reads_it(name, folders):
    _, folder = folders("bert")
    with pytest.raises(StrictDataclassError, match=SAYS):
        getattr(hf, name).from_pretrained(folder)


def test_overriding_a_value_opens_no_file(folders):
    _, folder = folders("bert")
    for more in (
        {"num_attention_heads": 4},
        {"num_labels": 3},
        {"hidden_size": 24},
        {"dtype": torch.float16},
    ):
        with pytest.raises(StrictDataclassError, match=SAYS):
            hf.BertForSequenceClassification.from_pretrained(folder, **more)


def test_a_whole_configuration_given_by_hand_still_meets_other_shapes(folders):
    model, folder = folders("bert")
    for only_empty in (False, True):
        if only_empty:  # layers that are whole or empty: no head count is uneven
            mask = mask_of(model, [head.layer != 1 for head in model.grid.heads])
            folder = save(
                folder.parent / "empty", shrink_model(model, mask).module, tiny_tokenizer()
            )
        with pytest.raises(RuntimeError, match=r"size mismatch|ignore_mismatched_sizes"):
            hf.BertForSequenceClassification.from_pretrained(folder, config=model.module.config)


def test_the_file_says_where_its_numbers_are_and_a_copy_has_them_too(folders, tmp_path):
    _, folder = folders("bart")
    facts = json.loads((folder / "config.json").read_text())
    assert facts["encoder_attention_heads"] == facts["decoder_attention_heads"] == SENTENCE
    module = read_folder(folder, "folder", "m").module
    assert (module.config.encoder_attention_heads, module.config.num_labels) == (4, 3)
    assert not hasattr(module.config, "headlab_sealed")
    module.config.id2label = {0: "no", 1: "yes"}
    save(tmp_path / "again", module, tiny_tokenizer())
    again = hf.AutoConfig.from_pretrained(tmp_path / "again")
    assert again.to_dict() | {"_name_or_path": ""} == module.config.to_dict() | {
        "_name_or_path": ""
    }
    assert again.id2label == {0: "no", 1: "yes"}


def autos_of(config):
    """(name, Auto class) of those that have a class for this configuration."""
    for name in modeling_auto.__all__:
        auto = getattr(modeling_auto, name)
        mapping = getattr(auto, "_model_mapping", None)
        if mapping is not None and type(config) in mapping:
            yield name, auto


def attention_of(module):
    """{name: values} of the weights inside attention layers, by names from the base model."""
    prefix = f"{type(module).base_model_prefix}."
    inside = ("attention.", "attn.", "Attention.")
    state = {name.removeprefix(prefix): t for name, t in module.state_dict().items()}
    return {
        n: t for n, t in state.items() if any(part in n for part in inside) and "LayerNorm" not in n
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_auto_class_reads_the_same_attention_or_refuses(family, folders):
    make_known()
    _, folder = folders(family)
    config = hf.AutoConfig.from_pretrained(folder)
    want = attention_of(read_folder(folder, "folder", "m").module)
    autos = {name: auto._model_mapping[type(config)] for name, auto in autos_of(config)}
    found = {name: tried(auto, folder) for name, auto in autos_of(config)}
    read = {
        name: attention_of(module)
        for name, module in found.items()
        if isinstance(module, hf.PreTrainedModel)
    }
    assert len(read) >= 3
    for name, got in read.items():
        assert got
        assert all(torch.equal(got[key], want[key]) for key in got), name
    refused = {name: error.code for name, error in found.items() if isinstance(error, HeadlabError)}
    assert set(refused.values()) <= {"model.other_class"}
    assert {autos[name].__name__.removeprefix("Shrunk") for name in refused} <= ELSEWHERE


def tried(auto, folder):
    """A model, or why there is none; whole models of some classes are refused for what they lack, too."""
    try:
        return auto.from_pretrained(folder)
    except (HeadlabError, ValueError, RuntimeError, AttributeError) as error:
        return error


def test_a_half_of_an_encoder_decoder_is_cut_as_the_whole_and_unknown_stacks_are_refused(folders):
    make_known()
    model, folder = folders("marian")
    decoder = hf.AutoModelForCausalLM.from_pretrained(folder)
    sizes = [layer.self_attn.q_proj.out_features // 6 for layer in decoder.model.decoder.layers]
    kept = [head for head in uneven(model).grid.heads if head not in uneven(model).removed]
    assert sizes == [
        sum((head.stack, head.layer) == ("decoder", layer) for head in kept) for layer in range(3)
    ]
    with raises("shrunk.stacks_mismatch", "decoder, cross"):
        cut_structure(decoder, {"sideways": [[0]]})


def test_auto_classes_give_the_same_logits(folders):
    make_known()
    model, folder = folders("bert")
    batch = tiny_batch(model.module)
    found = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    want = read_folder(folder, "folder", "m").module.eval()
    assert torch.equal(logits(found, batch), logits(want, batch))
    base = hf.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.inference_mode():
        assert torch.equal(base(**batch).last_hidden_state, found.bert(**batch).last_hidden_state)
    assert hf.AutoTokenizer.from_pretrained(folder)("w5")["input_ids"] == [1, 5, 2]


@pytest.mark.slow
def test_without_headlab_the_auto_classes_refuse_it_by_its_model_type(folders):
    _, folder = folders("bert")
    code = (
        "import sys, transformers\n"
        "for name in ('AutoConfig', 'AutoModel', 'AutoModelForSequenceClassification'):\n"
        "    try:\n"
        "        getattr(transformers, name).from_pretrained(sys.argv[1])\n"
        "    except ValueError as error:\n"
        "        print('headlab-shrunk-bert' in str(error))\n"
        "print(transformers.AutoTokenizer.from_pretrained(sys.argv[1])('w5')['input_ids'])\n"
        "print('headlab' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["True"] * 3 + ["[1, 5, 2]", "False"]
