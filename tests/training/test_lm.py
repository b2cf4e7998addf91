"""Language models: text to tokens, windows, training that goes on where it stopped, perplexity with its interval."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from support.expected_errors import raises
from support.synthetic_text import TINY, made_up, text, tiny_lm, write_text

import headlab
from headlab.cli import output
from headlab.cli.main import FAILED, OK, main
from headlab.core import HeadlabError, read_json, write_json
from headlab.models.allattention.modelling import parameter_counts
from headlab.training import LmGateOptions, LmOptions, LmStep
from headlab.training.lm_perplexity import perplexity, speeds
from headlab.training.lm_text import (
    data_hash,
    encode,
    make_tokenizer,
    read_lines,
    step_windows,
    steps_an_epoch,
)
from headlab.training.lm_train import (
    LmSteps,
    config_of,
    new_model,
    new_state,
    read_sums,
    sums_record,
    train_lm,
)
from headlab.training.steps import Watch

ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


class Stop(Exception):
    """Somebody pressed Ctrl-C."""


def stopping(after: int, part: str = "training") -> Watch[LmStep]:
    """A look that keeps the state after every step and stops the run after so many of a part."""

    def progress(step: LmStep) -> None:
        if step.part == part and step.step == after:
            raise Stop

    return Watch(progress, checkpoint_every=1, checkpoint_share=1.0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return found


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_a_tokenizer_is_the_same_for_the_same_lines_and_keeps_its_size(kind: str) -> None:
    lines = made_up(50)
    first, again = (make_tokenizer(lines, kind, 270 if kind == "bpe" else 8) for _ in range(2))
    assert first.get_vocab() == again.get_vocab()
    assert len(first) <= (270 if kind == "bpe" else 8)


def test_pieces_write_every_text_and_words_do_not() -> None:
    lines = made_up(50)
    odd = "Zürich  <unk> 東京\tx"
    pieces = make_tokenizer(lines, "bpe", 300)
    words = make_tokenizer(lines, "word", 30)
    assert pieces.decode(encode(pieces, [odd]).ids[1:]) == odd + "\n"
    assert words.unk_token_id in encode(words, [odd]).ids


def test_a_vocabulary_that_is_too_small_is_refused() -> None:
    with raises("vocabulary.too_small"):
        make_tokenizer(made_up(5), "bpe", 100)


def test_every_line_ends_in_a_token_and_counts_as_a_word_more() -> None:
    lines = ["anna sees bert", "", " the tree "]
    found = encode(make_tokenizer(made_up(50), "word", 30), lines)
    assert found.line_words.tolist() == [4, 1, 3]
    assert found.line_tokens.tolist() == [4, 1, 3]
    assert found.predicted_tokens == 8


def test_a_folder_has_splits_and_a_file_is_cut_into_them(tmp_path: Path) -> None:
    folder = write_text(tmp_path / "data", train=60, held=20)
    assert {split: len(lines) for split, lines in read_lines(folder).items()} == {
        "train": 60,
        "valid": 20,
        "test": 20,
    }
    one = read_lines(folder / "train.txt")
    assert [len(one[split]) for split in ("train", "valid", "test")] == [54, 3, 3]
    assert [line for part in one.values() for line in part] == made_up(60)
    few = read_lines(folder, words=40)
    assert 40 <= sum(len(line.split()) + 1 for line in few["train"]) < 40 + 10
    assert [few[split] for split in ("valid", "test")] == [made_up(20, seed) for seed in (1, 2)]
    assert data_hash(few) != data_hash(read_lines(folder))
    held = read_lines(folder, held_words=15)
    assert len(held["train"]) == 60
    assert [
        sum(len(line.split()) + 1 for line in held[split]) < 15 + 10 for split in ("valid", "test")
    ] == [True, True]


def test_a_mark_at_the_start_of_a_file_and_foreign_line_ends_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"\xef\xbb\xbfa l\r\n" + "b\u2028c\r\n".encode() * 19)
    lines = [line for part in read_lines(file).values() for line in part]
    assert lines == ["a l", *["b\u2028c"] * 19]


def test_text_that_cannot_be_used_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with raises("file.missing", "train.txt, valid.txt, test.txt"):
        read_lines(tmp_path)
    with raises("file.missing", "absent.txt", "a folder needs"):
        read_lines(tmp_path / "absent.txt")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\xfe")
    with raises("data.not_utf8", "line 2", "byte 1"):
        read_lines(bad)
    bad.write_text(" \n\n")
    with raises("file.no_words"):
        read_lines(bad)
    bad.write_text("one\ntwo\n")
    with raises("lm.lines_too_few", 2):
        read_lines(bad)


def test_an_epoch_is_made_of_windows_that_do_not_overlap_and_the_next_of_others() -> None:
    options = replace(TINY, batch=3)
    asked = 103
    each = steps_an_epoch(asked, options)
    epochs = [
        np.concatenate([step_windows(asked, options, e * each + s) for s in range(each)])
        for e in range(2)
    ]
    for starts in epochs:
        assert len(set(starts)) == each * 3
        assert (np.diff(np.sort(starts)) % options.block == 0).all()
        assert starts.min() >= 0
        assert starts.max() + options.block <= asked
    assert epochs[0].tolist() != epochs[1].tolist()
    assert step_windows(asked, options, 4).tolist() == step_windows(asked, options, 4).tolist()
    with raises("lm.text_too_short"):
        step_windows(20, options, 0)


def test_kept_sums_are_read_back_for_the_same_text_and_refused_where_torn(tmp_path: Path) -> None:
    sums = {split: np.random.default_rng(0).random((3, 3)) for split in ("valid", "test")}
    assert read_sums(tmp_path, "data", 8) is None
    write_json(tmp_path / "perplexity.json", sums_record(sums, "data", 8))
    again = read_sums(tmp_path, "data", 8)
    assert again is not None
    np.testing.assert_array_equal(again["test"], sums["test"])
    assert read_sums(tmp_path, "other", 8) is None
    for bad, code in (
        ([], "lm.sums_unreadable"),
        ({"data": "data", "block": 8}, "lm.sums_unreadable"),
        ({"data": "data", "block": 8, "passages": {"valid": [[1]], "test": 2}}, "lm.sums_invalid"),
    ):
        write_json(tmp_path / "perplexity.json", bad)
        with raises(code, tmp_path):
            read_sums(tmp_path, "data", 8)


@settings(max_examples=60, deadline=None)
@given(
    value=ANY_JSON,
    place=st.sampled_from([("passages",), ("passages", "test"), ("data",), ("block",), ()]),
)
def test_any_other_file_of_sums_is_told_or_left_aside(
    value: Any, place: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lm")
    whole: Any = sums_record({split: np.ones((2, 3)) for split in ("valid", "test")}, "data", 8)
    inner = whole
    for name in place[:-1]:
        inner = inner[name]
    if place:
        inner[place[-1]] = value
    write_json(folder / "perplexity.json", whole if place else value)
    try:
        found = read_sums(folder, "data", 8)
    except HeadlabError as error:
        if error.code not in ("lm.sums_unreadable", "lm.sums_invalid"):
            raise
        found = None
    assert found is None or all(part.shape[1] == 3 for part in found.values())


def test_a_model_learns_the_order_of_words_and_its_folder_is_whole(tmp_path: Path) -> None:
    out = train_lm(text(200), tmp_path / "lm", replace(TINY, steps=60, batch=8))
    record = read_json(out / "training.json")
    assert record["loss"]["last"] < record["loss"]["first"] - 0.3
    assert record["perplexity"]["test"]["word"] < 13  # of 13 words and ends of lines
    model = headlab.load(str(out), device="cpu")
    assert model.grid.to_json() == {"decoder": [3, 3]}
    assert record["parameters"]["whole"] == sum(p.numel() for p in model.module.parameters())
    assert [p.name for p in tmp_path.iterdir()] == ["lm"]
    sums = read_sums(out, record["data"]["sha256"], TINY.block)
    assert sums is not None
    assert perplexity(sums["test"]).word == pytest.approx(record["perplexity"]["test"]["word"])


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("kind", ["all-attention", "transformer"])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    options = replace(TINY, kind=kind)
    lines = text()
    whole = weights(train_lm(lines, tmp_path / "whole", options))
    with pytest.raises(Stop):
        train_lm(lines, tmp_path / "parts", options, watch=stopping(4))
    seen: list[int] = []
    train_lm(lines, tmp_path / "parts", options, watch=Watch(lambda step: seen.append(step.step)))
    assert seen == [5, 6]
    parts = weights(tmp_path / "parts")
    assert all(torch.equal(tensor, parts[name]) for name, tensor in whole.items())
    other = weights(train_lm(lines, tmp_path / "other", replace(options, seed=1)))
    assert not torch.equal(other["model.embeddings.weight"], whole["model.embeddings.weight"])


def test_parts_of_a_batch_add_up_to_its_gradient() -> None:
    lines = text()
    grown = []
    tokenizer = make_tokenizer(lines["train"], "word", 20)
    for micro in (None, 3):
        options = replace(TINY, dropout=0.0, micro_batch=micro)
        torch.manual_seed(0)
        model = new_model(config_of(options, tokenizer), torch.device("cpu"))
        steps = LmSteps(model, encode(tokenizer, lines["train"]), options, new_state(model, 0.0))
        steps.step(2, steps.batch_at(2))
        grown.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )
    torch.testing.assert_close(grown[0], grown[1], atol=1e-6, rtol=1e-4)


def test_both_kinds_of_equal_numbers_have_about_as_many_parameters() -> None:
    tokenizer = make_tokenizer(made_up(20), "word", 20)
    ours, plain = (
        parameter_counts(config_of(LmOptions(kind=k), tokenizer))
        for k in ("all-attention", "transformer")
    )
    assert abs(plain.layers / ours.layers - 1) < 0.01


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kind": "lstm"}, ("option.invalid", "all-attention or transformer")),
        ({"tokenizer": "letters"}, ("option.invalid", "bpe or word")),
        ({"steps": 0}, ("option.invalid", "steps", 0, "a whole number of 1 or more")),
        ({"learning_rate": 2.0}, ("option.invalid", "between 0 and 1")),
        ({"heads": 5}, ("training.width_mismatch", 5)),
        ({"dropout": 1.0}, ("option.invalid", "from 0 to 0.9")),
        ({"pre_norm": 1}, ("option.invalid", "true or false")),
        ({"weight_decay": float("inf")}, ("option.invalid", "from 0 to 1")),
        ({"width": True}, ("option.invalid", "a whole number of 1 or more")),
        ({"learning_rate": float("nan")}, ("option.invalid", "between 0 and 1")),
    ],
)
def test_options_that_cannot_be_trained_with_are_refused(
    tmp_path: Path, options: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with raises(*expected):
        train_lm(text(), tmp_path / "lm", replace(TINY, **options))


def test_gates_that_no_float_has_room_for_are_refused() -> None:
    for ends in ({"low": -10.0, "high": 1.0000000000000002}, {"low": -5e-324, "high": 3.0}):
        with raises("gate.distribution_invalid"):
            LmGateOptions.of(ends)
    LmGateOptions.of({"low": -999.0, "high": 999.0, "temperature": 999.0})


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    assert LmOptions.of({"clip": None, "steps": 7}) == LmOptions(clip=None, steps=7)
    assert LmGateOptions.of({"history": 3}) == LmGateOptions(history=3)
    for options in (LmOptions, LmGateOptions):
        with raises("option.unknown", "'momentum'", "weight_decay"):
            options.of({"momentum": 0.9})


def test_a_loss_that_is_no_number_stops_the_training(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(text()["train"], "word", 20)
    model = new_model(config_of(TINY, tokenizer), torch.device("cpu"))
    with torch.no_grad():
        model.model.embeddings.weight.fill_(float("nan"))
    steps = LmSteps(model, encode(tokenizer, text()["train"]), TINY, new_state(model, 0.0))
    with raises("training.loss_not_finite"):
        steps.step(0, steps.batch_at(0))


def test_speeds_are_ratios_to_the_first_model_of_the_same_round() -> None:
    models = {"slow": tiny_lm((2,)), "fast": tiny_lm((1,))}
    times = iter([0.0, 8.0, 0.0, 6.0, 0.0, 2.0, 0.0, 3.0] * 3)
    found = speeds(models, tokens=4, rounds=3, clock=lambda: next(times))
    assert found["slow"] == (1, 1, 1, 1, 1, 1)
    assert found["fast"] == (4, 4, 4, 2, 2, 2)


def test_the_command_trains_and_tells_the_perplexity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_text(tmp_path / "data")
    out = tmp_path / "lm"
    sizes = {
        "tokenizer": "word",
        "layers": 1,
        "heads": 2,
        "width": 8,
        "persistent": 3,
        "block": 8,
        "batch": 4,
        "steps": 2,
    }
    command = ["train", "lm", "--data", str(data), "--out", str(out), "--device", "cpu"]
    command += [f"--{name}={value}" for name, value in sizes.items()]
    assert main(command) == OK
    said, messages = capsys.readouterr()
    assert re.search(
        r"^train lm: \d+ forwards, about 0 s: 2 steps of 4 windows of 8 tokens; .* measured now; ",
        messages,
    )
    assert "2 heads" in said
    assert "test: perplexity" in said
    assert "passages" in said
    assert main([*command, "--kind", "lstm"]) == FAILED
    assert "all-attention or transformer" in capsys.readouterr().err
    assert main([*command, "-o", "clip=none", "-o", "pre_norm=false", "--json"]) == OK
    options = json.loads(capsys.readouterr().out)["training"]["options"]
    assert (options["clip"], options["pre_norm"]) == (None, False)
    assert main([*command, "-o", "steps=3"]) == FAILED
    assert "steps is set by --steps" in capsys.readouterr().err


def test_a_text_that_names_what_is_unknown_is_trained_on(tmp_path: Path) -> None:
    lines = {
        split: ["the <unk> bird", "a <|end|> tree"] * 20 for split in ("train", "valid", "test")
    }
    folder = train_lm(lines, tmp_path / "lm", replace(TINY, vocabulary=500))
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    ids = make_tokenizer(lines["train"], "word", 500)("the <unk> bird\na <|end|> tree\n").input_ids
    assert max(ids) == vocabulary - 1


def test_a_training_tells_how_it_goes_where_there_is_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.0)
    data = write_text(tmp_path / "data")
    out = tmp_path / "lm"
    command = [
        "train",
        "lm",
        "--data",
        str(data),
        "--out",
        str(out),
        "--device",
        "cpu",
        "--tokenizer=word",
    ]
    sizes = [
        "--layers=1",
        "--heads=2",
        "--width=8",
        "--persistent=3",
        "--block=8",
        "--batch=4",
        "--steps=2",
    ]
    assert main([*command, *sizes]) == OK
    assert re.search(
        r"1/2 training, loss \d\.\d+, 0:00:0\d left of this part", capsys.readouterr().err
    )
