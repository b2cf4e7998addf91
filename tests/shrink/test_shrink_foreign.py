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
from support.saved_models import save_model
from support.shrunk_families import logits, mask_of, random_model, uneven_mask
from support.tiny_models import tiny_batch
from support.tiny_task import tiny_tokenizer
from transformers.models.auto import modeling_auto

from headlab.core import HeadlabError
from headlab.models.load import read_folder
from headlab.models.shrunk_classes import SENTENCE
from headlab.models.shrunk_cut import FAMILIES
from headlab.models.shrunk_rest import shrink_structure
from headlab.shrink import make_known, shrink_model

MODEL_OF_FAMILY = {name: name for name in FAMILIES} | {"gpt2": "gpt2-lm", "llama": "llama-lm"}
# In transformers these call their base model otherwise than the rest of the family, so that they find none of its weights.
CLASSES_WITHOUT_WEIGHTS = {
    "LlamaForQuestionAnswering",
    "Qwen2ForQuestionAnswering",
    "Qwen3ForQuestionAnswering",
}


REFUSAL = re.escape(SENTENCE)
AUTO_CLASSES_OF_TEXTS = [
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForMultipleChoice",
    "AutoModelForNextSentencePrediction",
    "AutoModelForQuestionAnswering",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoModelForTextEncoding",
    "AutoModelForTokenClassification",
]


@pytest.fixture(scope="module")
def model_and_folder(tmp_path_factory):
    """Gives a family's model and the folder of its shrunk one, which is written when it is first asked for."""
    by_family = {}

    def get(family):
        if family not in by_family:
            model = random_model(MODEL_OF_FAMILY[family], tiny_tokenizer(), dtype=torch.float32)
            shrunk = shrink_model(model, uneven_mask(model))
            folder = tmp_path_factory.mktemp("foreign") / family
            save_model(folder, shrunk.module, tiny_tokenizer())
            by_family[family] = (model, folder)
        return by_family[family]

    return get


def classes_of(family):
    """All classes of a family that hold weights."""
    name = family.replace("-", "_")
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    names = [name for name in module.__all__ if not name.endswith("PreTrainedModel")]
    values = [getattr(module, name) for name in names]
    classes = [value for value in values if isinstance(value, type)]
    return [value for value in classes if issubclass(value, hf.PreTrainedModel)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_class_of_the_family_refuses_the_folder(family, model_and_folder):
    _, folder = model_and_folder(family)
    assert len(classes_of(family)) > 1
    for model_class in classes_of(family):
        with pytest.raises(StrictDataclassError, match=REFUSAL):
            model_class.from_pretrained(folder)


def configuration_classes(auto_class_names):
    """Classes of the configurations of whole models that these Auto classes know, but for headlab's."""
    known_classes = set()
    for name in auto_class_names:
        known_classes |= set(getattr(modeling_auto, name)._model_mapping)
    return [known for known in known_classes if not known.model_type.startswith("headlab")]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_configuration_of_another_model_of_texts_can_be_made_of_its_file(
    family, model_and_folder
):
    _, folder = model_and_folder(family)
    classes = configuration_classes(AUTO_CLASSES_OF_TEXTS)
    assert len(classes) > 100
    for configuration_class in classes:
        # each has checks of its own, and some want packages
        with pytest.raises(Exception):  # noqa: B017, PT011
            configuration_class.from_pretrained(folder)


@pytest.mark.parametrize(
    "name",
    ["XLMRobertaModel", "RobertaModel", "ElectraModel", "LlamaForQuestionAnswering", "AlbertModel"],
)
def test_classes_of_other_families_say_who_reads_it(name, model_and_folder):
    _, folder = model_and_folder("bert")
    with pytest.raises(StrictDataclassError, match=REFUSAL):
        getattr(hf, name).from_pretrained(folder)


def test_overriding_a_value_opens_no_file(model_and_folder):
    _, folder = model_and_folder("bert")
    for overrides in (
        {"num_attention_heads": 4},
        {"num_labels": 3},
        {"hidden_size": 24},
        {"dtype": torch.float16},
    ):
        with pytest.raises(StrictDataclassError, match=REFUSAL):
            hf.BertForSequenceClassification.from_pretrained(folder, **overrides)


def test_a_whole_configuration_given_by_hand_still_meets_other_shapes(model_and_folder):
    model, folder = model_and_folder("bert")
    # layers that are whole or empty: no head count is uneven
    mask = mask_of(model, [head.layer != 1 for head in model.grid.heads])
    folder_of_whole_layers = folder.parent / "empty"
    save_model(folder_of_whole_layers, shrink_model(model, mask).module, tiny_tokenizer())
    for shrunk_folder in (folder, folder_of_whole_layers):
        with pytest.raises(RuntimeError, match=r"size mismatch|ignore_mismatched_sizes"):
            hf.BertForSequenceClassification.from_pretrained(
                shrunk_folder, config=model.module.config
            )


def test_the_file_says_where_its_numbers_are_and_a_copy_has_them_too(model_and_folder, tmp_path):
    _, folder = model_and_folder("bart")
    stored_config = json.loads((folder / "config.json").read_text())
    assert (
        stored_config["encoder_attention_heads"]
        == stored_config["decoder_attention_heads"]
        == SENTENCE
    )
    module = read_folder(folder, "folder", "m").module
    assert module.config.encoder_attention_heads == 4
    assert module.config.num_labels == 3
    assert not hasattr(module.config, "headlab_sealed")
    module.config.id2label = {0: "no", 1: "yes"}
    save_model(tmp_path / "again", module, tiny_tokenizer())
    config_of_copy = hf.AutoConfig.from_pretrained(tmp_path / "again")
    without_path = {"_name_or_path": ""}
    assert config_of_copy.to_dict() | without_path == module.config.to_dict() | without_path
    assert config_of_copy.id2label == {0: "no", 1: "yes"}


def auto_classes(config):
    """(name, Auto class) of those that have a class for this configuration."""
    for name in modeling_auto.__all__:
        auto_class = getattr(modeling_auto, name)
        mapping = getattr(auto_class, "_model_mapping", None)
        if mapping is not None and type(config) in mapping:
            yield name, auto_class


def attention_weights(module):
    """Weights inside attention layers, by their names from the base model on."""
    prefix = f"{type(module).base_model_prefix}."
    parts_of_names = ("attention.", "attn.", "Attention.")
    weights = {}
    for name, weight in module.state_dict().items():
        name = name.removeprefix(prefix)
        if any(part in name for part in parts_of_names) and "LayerNorm" not in name:
            weights[name] = weight
    return weights


@pytest.mark.parametrize("family", FAMILIES)
def test_every_auto_class_reads_the_same_attention_or_refuses(family, model_and_folder):
    make_known()
    _, folder = model_and_folder(family)
    config = hf.AutoConfig.from_pretrained(folder)
    expected_weights = attention_weights(read_folder(folder, "folder", "m").module)
    modules_read = 0
    for name, auto_class in auto_classes(config):
        module = model_or_error(auto_class, folder)
        if isinstance(module, hf.PreTrainedModel):
            modules_read += 1
            weights = attention_weights(module)
            assert weights
            for weight_name, weight in weights.items():
                assert torch.equal(weight, expected_weights[weight_name]), name
        if isinstance(module, HeadlabError):
            assert module.code == "model.other_class"
            model_class = auto_class._model_mapping[type(config)]
            assert model_class.__name__.removeprefix("Shrunk") in CLASSES_WITHOUT_WEIGHTS
    assert modules_read >= 3


def model_or_error(auto_class, folder):
    """The model, or why there is none; some classes refuse whole models too, for what these lack."""
    try:
        return auto_class.from_pretrained(folder)
    except (HeadlabError, ValueError, RuntimeError, AttributeError) as error:
        return error


def test_a_half_of_an_encoder_decoder_is_cut_as_the_whole_and_unknown_stacks_are_refused(
    model_and_folder,
):
    make_known()
    model, folder = model_and_folder("marian")
    mask = uneven_mask(model)
    decoder = hf.AutoModelForCausalLM.from_pretrained(folder)
    heads_by_layer = [
        layer.self_attn.q_proj.out_features // 6 for layer in decoder.model.decoder.layers
    ]
    kept_heads = [head for head in mask.grid.heads if head not in mask.removed]
    layers_of_kept_heads = [head.layer for head in kept_heads if head.stack == "decoder"]
    assert heads_by_layer == [layers_of_kept_heads.count(layer) for layer in range(3)]
    with raises("shrunk.stacks_mismatch", "decoder, cross"):
        shrink_structure(decoder, {"sideways": [[0]]})


def test_auto_classes_give_the_same_logits(model_and_folder):
    make_known()
    model, folder = model_and_folder("bert")
    batch = tiny_batch(model.module)
    auto_module = hf.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    headlab_module = read_folder(folder, "folder", "m").module.eval()
    assert torch.equal(logits(auto_module, batch), logits(headlab_module, batch))
    base = hf.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.inference_mode():
        hidden_states = base(**batch).last_hidden_state
        assert torch.equal(hidden_states, auto_module.bert(**batch).last_hidden_state)
    assert hf.AutoTokenizer.from_pretrained(folder)("w5")["input_ids"] == [1, 5, 2]


@pytest.mark.slow
def test_without_headlab_the_auto_classes_refuse_it_by_its_model_type(model_and_folder):
    _, folder = model_and_folder("bert")
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
    process = subprocess.run(
        [sys.executable, "-I", "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines() == ["True"] * 3 + ["[1, 5, 2]", "False"]
