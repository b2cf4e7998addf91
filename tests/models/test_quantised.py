"""Quantised checkpoints: dequantised where that is possible, else refused in a sentence before anything is read."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.expected_errors import raises
from support.running_worker import started_worker
from support.saved_models import save_family, save_model
from support.tiny_models import tiny_module
from support.tiny_task import tiny_task, tiny_tokenizer
from support.waiting import wait_until
from transformers import LlamaConfig, LlavaConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AutoHfQuantizer
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

import headlab
from headlab.models import quantised as quantised_module
from headlab.models.load import Fact, examine_model
from headlab.models.quantised import quantisation_of
from headlab.shrink import shrink_model
from headlab.training.output import find_base, load_base
from headlab.worker.model_host import ModelHost

READ_WITHOUT_PACKAGE = ("fp8", "mxfp8", "mxfp4", "metal", "gguf")  # without a further package
NEEDS_PACKAGE = {"bitsandbytes_4bit": "bitsandbytes", "bitsandbytes_8bit": "bitsandbytes"}
NEEDS_PACKAGE |= {"compressed-tensors": "compressed-tensors"}
REFUSED_SCHEMES = sorted(
    {*AUTO_QUANTIZATION_CONFIG_MAPPING} - {*READ_WITHOUT_PACKAGE, *NEEDS_PACKAGE}
)


def settings_of(scheme: str) -> dict[str, object]:
    """The shortest `quantization_config` of a scheme, as `transformers` names it."""
    method, _, bits = scheme.rpartition("_")
    if method == "bitsandbytes":
        return {"quant_method": method, f"load_in_{bits}": True}
    return {"quant_method": scheme, "bits": 4}


def set_quantisation(folder: Path, settings: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": settings}))


def save_as_quantised(folder: Path, settings: object, family: str = "bert") -> Path:
    """A tiny model whose config.json says that its weights are quantised; they are not."""
    save_family(folder, family)
    set_quantisation(folder, settings)
    return folder


def facts_of(folder: Path) -> dict[str, Fact]:
    return {fact.what: fact for fact in examine_model(str(folder))}


def assert_refused(folder: Path, code: str, *values: object, fact_name: str = "Weights") -> None:
    """Loading is refused with this code, and the check before loading says the same sentence."""
    with raises(code, *values) as caught:
        headlab.load(folder, device="cpu")
    fact = facts_of(folder)[fact_name]
    assert fact.ok is False
    assert fact.words == f"{str(caught.value).rstrip('.')}."


@pytest.mark.parametrize("scheme", REFUSED_SCHEMES)
def test_reported_15_a_scheme_that_cannot_be_dequantised_is_refused_before_loading(
    tmp_path, scheme
):
    folder = save_as_quantised(tmp_path / "m", settings_of(scheme))
    assert_refused(
        folder, "model.quantised", "quantised with", scheme, "4 bits", "unquantised checkpoint"
    )


def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the packages that read quantised weights look as if they were not installed."""

    def missing(*_: object, **__: object) -> None:
        raise ImportError("no such package")

    monkeypatch.setattr(AutoHfQuantizer, "from_config", missing)
    monkeypatch.setattr(quantised_module, "find_spec", lambda *_: None)


@pytest.mark.parametrize("scheme", NEEDS_PACKAGE)
def test_reported_15_a_missing_package_is_named_as_pip_knows_it(tmp_path, monkeypatch, scheme):
    folder = save_as_quantised(tmp_path / "m", settings_of(scheme))
    without_packages(monkeypatch)
    assert_refused(
        folder,
        "model.quantisation_package",
        f"pip install {NEEDS_PACKAGE[scheme]}",
        "unquantised checkpoint",
    )


def test_reported_15_flags_alone_mean_bitsandbytes(tmp_path, monkeypatch):
    folder = save_as_quantised(tmp_path / "m", {"load_in_4bit": True})
    without_packages(monkeypatch)
    assert_refused(folder, "model.quantisation_package", "bitsandbytes (4 bits)")


@pytest.mark.parametrize(
    "error",
    [RuntimeError("No GPU found."), ImportError("libcudart"), AssertionError(), OSError(5, "x")],
)
def test_reported_15_a_package_that_cannot_work_here_is_a_sentence(tmp_path, monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Bnb4BitHfQuantizer, "validate_environment", fail)
    monkeypatch.setattr(quantised_module, "find_spec", lambda *_: "installed")
    folder = save_as_quantised(tmp_path / "m", {"load_in_4bit": True})
    assert_refused(
        folder,
        "model.quantised",
        "bitsandbytes (4 bits)",
        "cannot be read here",
        "unquantised checkpoint",
    )


@pytest.mark.parametrize("scheme", READ_WITHOUT_PACKAGE)
def test_reported_15_what_is_read_without_a_package_still_is(tmp_path, scheme):
    folder = save_as_quantised(tmp_path / "m", settings_of(scheme))
    assert facts_of(folder)["Weights"].ok
    model = headlab.load(folder, device="cpu")
    expected_weights = tiny_module("bert", torch.float32).state_dict()
    for name, weight in model.module.state_dict().items():
        assert torch.equal(weight, expected_weights[name]), name
    assert not hasattr(model.module.config, "quantization_config")


SETTINGS_WITHOUT_METHOD = [
    {},
    {"bits": 4},
    {"quant_method": None},
    {"quant_method": ["gptq"]},
    {"quant_method": {}},
]


@pytest.mark.parametrize("settings", SETTINGS_WITHOUT_METHOD)
def test_reported_15_settings_without_a_method_are_refused(tmp_path, settings):
    assert_refused(
        save_as_quantised(tmp_path / "m", settings),
        "model.quantisation_unnamed",
        "quant_method",
        "unquantised",
    )


@pytest.mark.parametrize("settings", [["gptq"], "gptq", 4, True])
def test_reported_15_settings_that_are_no_object_are_refused(tmp_path, settings):
    folder = save_as_quantised(tmp_path / "m", settings)
    assert_refused(
        folder,
        "model.quantisation_unnamed",
        "quant_method",
        "unquantised",
        fact_name="Configuration",
    )


def test_reported_15_the_settings_of_mlx_are_recognised(tmp_path):
    assert_refused(
        save_as_quantised(tmp_path / "m", {"group_size": 64, "bits": 4}),
        "model.quantisation_unnamed",
        "MLX",
    )


def test_reported_15_settings_of_a_part_are_found():
    text = LlamaConfig(quantization_config={"quant_method": "gptq", "bits": 3})
    quantisation = quantisation_of(LlavaConfig(text_config=text), "m")
    assert quantisation is not None
    assert quantisation.title == "gptq (3 bits)"


def save_as_fp8(folder: Path) -> dict[str, torch.Tensor]:
    """Save a tiny Llama in blocks of fp8.

    Returns its weights by name, as they are after the blocks are multiplied by their scales.
    """
    save_model(folder, tiny_module("llama-lm", torch.float32), tiny_tokenizer())
    stored_weights = {}
    dequantised_weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if name.endswith("proj.weight"):
            scale = weight.abs().max() / 448
            stored_weights[name] = (weight / scale).to(torch.float8_e4m3fn)
            stored_weights[f"{name}_scale_inv"] = scale.view(1, 1)
            dequantised_weights[name] = stored_weights[name].float() * scale
        else:
            stored_weights[name] = weight
            dequantised_weights[name] = weight
    save_file(stored_weights, folder / "model.safetensors", metadata={"format": "pt"})
    set_quantisation(folder, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    return dequantised_weights


def test_reported_15_fp8_is_read_as_the_numbers_that_it_stands_for(tmp_path):
    folder = tmp_path / "m"
    dequantised_weights = save_as_fp8(folder)
    model = headlab.load(folder, device="cpu")
    for name, weight in dequantised_weights.items():
        # read as bfloat16
        assert torch.allclose(model.module.get_parameter(name), weight, rtol=2**-8), name
    assert "fp8" in facts_of(folder)["Weights"].words


def test_reported_15_a_dequantised_model_is_shrunk_and_read_back(tmp_path):
    save_as_fp8(tmp_path / "m")
    model = headlab.load(tmp_path / "m", device="cpu")
    is_kept = np.ones(model.grid.size, dtype=bool)
    is_kept[:2] = False  # they share a key and a value
    shrunk = shrink_model(model, headlab.Mask(model.grid, is_kept))
    folder = save_model(tmp_path / "smaller", shrunk.module, tiny_tokenizer())
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert headlab.load(folder, device="cpu").grid.size == model.grid.size - 2


def replace_weight(folder: Path, name: str, new_names: tuple[str, ...]) -> Path:
    """Replace a weight by others, as quantising does."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights[name]
    weights |= {new_name: torch.ones(3, dtype=torch.int32) for new_name in new_names}
    save_file(weights, path, metadata={"format": "pt"})
    return folder


DENSE = "bert.encoder.layer.0.output.dense"
WEIGHT_NAMES_BY_SCHEME = {
    "gptq": ("qweight", "qzeros", "scales", "g_idx"),
    "exl2": ("q_weight", "q_scale", "q_groups"),
    "hqq": ("W_q", "scale", "zero"),
    "aqlm": ("codes", "codebooks", "scales"),
    "torchao": ("_weight_qdata", "_weight_scale"),
    "compressed-tensors": ("weight_packed", "weight_scale", "weight_shape"),
}


@pytest.mark.parametrize("scheme", WEIGHT_NAMES_BY_SCHEME)
def test_reported_15_quantised_weights_are_named_though_the_config_says_nothing(tmp_path, scheme):
    names = tuple(f"{DENSE}.{part}" for part in WEIGHT_NAMES_BY_SCHEME[scheme])
    folder = replace_weight(save_family(tmp_path / "m", "bert"), f"{DENSE}.weight", names)
    assert_refused(folder, "model.weights_missing", scheme, "unquantised checkpoint")


def test_reported_15_a_scheme_that_transformers_does_not_know_is_named_if_it_matters(tmp_path):
    folder = save_as_quantised(tmp_path / "m", {"quant_method": "exl9", "bits": 4})
    assert headlab.load(folder, device="cpu").grid.size == 12  # its weights are ordinary numbers
    replace_weight(folder, f"{DENSE}.weight", (f"{DENSE}.packed",))
    assert_refused(folder, "model.weights_missing", "exl9 (4 bits)", "unquantised checkpoint")


OTHER_FILES = {
    "model.Q4_K_M.gguf": "GGUF",
    "onnx/model_quantized.onnx": "ONNX",
    "openvino_model.bin": "OpenVINO",
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "weights.npz": "NumPy",
    "pytorch_model.bin": "pickled",
}


@pytest.mark.parametrize("file", OTHER_FILES)
def test_reported_15_weights_of_another_format_are_named(tmp_path, file):
    folder = save_family(tmp_path / "m", "bert")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / "model.safetensors").rename(folder / file)
    assert_refused(folder, "model.no_safetensors", OTHER_FILES[file], file)


def test_reported_15_a_folder_with_a_gguf_file_alone_is_told_what_it_holds(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "GGUF (model.gguf)" in facts_of(tmp_path)["Weights"].words
    with raises("model.no_safetensors", "GGUF"):
        headlab.load(tmp_path, device="cpu")


def test_reported_15_nothing_is_trained_on_a_quantised_base(tmp_path):
    base = find_base(str(save_as_quantised(tmp_path / "m", settings_of("gptq"))))
    with raises("model.quantised", "gptq (4 bits)", "unquantised checkpoint"):
        load_base(base, ("a", "b"), words=False)


def test_reported_15_a_base_of_fp8_is_trained_on_like_any_other(tmp_path):
    base = find_base(str(save_as_quantised(tmp_path / "m", settings_of("fp8"))))
    module, _ = load_base(base, ("a", "b", "c"), words=False)
    expected_weights = tiny_module("bert", torch.float32).state_dict()
    assert torch.equal(module.get_parameter(f"{DENSE}.weight"), expected_weights[f"{DENSE}.weight"])
    assert module.get_parameter("classifier.weight").shape[0] == 3


def test_reported_15_the_worker_says_it_in_its_check_its_answer_and_its_job(tmp_path):
    model = str(save_as_quantised(tmp_path / "m", settings_of("gptq")))

    def make_host() -> ModelHost:
        return ModelHost(tmp_path, "cpu", tasks=lambda _: tiny_task())

    with started_worker(tmp_path, make_host) as worker:
        response = httpx.post(f"{worker.url}/model", json={"model": model}, timeout=60)
        assert response.status_code == 400
        assert response.json()["code"] == "model.quantised"
        findings = worker.client.check_model(model)
        assert [finding.ok for finding in findings if finding.what == "Weights"] == [False]
        request = {"model": model, "task": "intents", "languages": ["en"], "method": "gradient"}
        job_id = worker.client.submit("score", request).id
        wait_until(lambda: worker.client.job(job_id).state == "failed", "the job")
        assert "unquantised checkpoint" in worker.client.job(job_id).error
