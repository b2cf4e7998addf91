"""Language models: text to tokens, windows, training that is resumed, perplexity."""

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
from support.expected_errors import raises
from support.synthetic_text import TINY_OPTIONS, made_sentences, made_splits, tiny_lm, write_splits
from support.training_runs import Stop, assert_same_weights, model_weights, stop_after

import headlab
from headlab.cli import output
from headlab.cli.run import FAILED, OK, main
from headlab.core import HeadlabError, read_json, write_json
from headlab.models.allattention.modelling import parameter_counts
from headlab.training import LmGateOptions, LmOptions
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


def words_of(lines: list[str]) -> int:
    """Words and ends of lines."""
    return sum(len(line.split()) + 1 for line in lines)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_a_tokenizer_is_the_same_for_the_same_lines_and_keeps_its_size(kind: str) -> None:
    lines = made_sentences(50)
    size = 270 if kind == "bpe" else 8
    tokenizer = make_tokenizer(lines, kind, size)
    assert tokenizer.get_vocab() == make_tokenizer(lines, kind, size).get_vocab()
    assert len(tokenizer) <= size


def test_pieces_write_every_text_and_words_do_not() -> None:
    lines = made_sentences(50)
    foreign_text = "Zürich  <unk> 東京\tx"
    piece_tokenizer = make_tokenizer(lines, "bpe", 300)
    word_tokenizer = make_tokenizer(lines, "word", 30)
    piece_ids = encode(piece_tokenizer, [foreign_text]).ids
    assert piece_tokenizer.decode(piece_ids[1:]) == foreign_text + "\n"
    assert word_tokenizer.unk_token_id in encode(word_tokenizer, [foreign_text]).ids


def test_a_vocabulary_that_is_too_small_is_refused() -> None:
    with raises("vocabulary.too_small"):
        make_tokenizer(made_sentences(5), "bpe", 100)


def test_every_line_ends_in_a_token_and_counts_as_a_word_more() -> None:
    lines = ["anna sees bert", "", " the tree "]
    corpus = encode(make_tokenizer(made_sentences(50), "word", 30), lines)
    assert corpus.line_words.tolist() == [4, 1, 3]
    assert corpus.line_tokens.tolist() == [4, 1, 3]
    assert corpus.predicted_tokens == 8


def test_a_folder_has_splits_and_a_file_is_cut_into_them(tmp_path: Path) -> None:
    folder = write_splits(tmp_path / "data", train=60, held_out=20)
    line_counts = {split: len(lines) for split, lines in read_lines(folder).items()}
    assert line_counts == {"train": 60, "valid": 20, "test": 20}
    of_one_file = read_lines(folder / "train.txt")
    assert [len(of_one_file[split]) for split in ("train", "valid", "test")] == [54, 3, 3]
    assert [line for lines in of_one_file.values() for line in lines] == made_sentences(60)
    few_train_words = read_lines(folder, words=40)
    assert 40 <= words_of(few_train_words["train"]) < 40 + 10
    assert few_train_words["valid"] == made_sentences(20, 1)
    assert few_train_words["test"] == made_sentences(20, 2)
    assert data_hash(few_train_words) != data_hash(read_lines(folder))
    few_held_out_words = read_lines(folder, held_words=15)
    assert len(few_held_out_words["train"]) == 60
    assert words_of(few_held_out_words["valid"]) < 15 + 10
    assert words_of(few_held_out_words["test"]) < 15 + 10


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
    file = tmp_path / "bad.txt"
    file.write_bytes(b"good\n\xff\xfe")
    with raises("data.not_utf8", "line 2", "byte 1"):
        read_lines(file)
    file.write_text(" \n\n")
    with raises("file.no_words"):
        read_lines(file)
    file.write_text("one\ntwo\n")
    with raises("lm.lines_too_few", 2):
        read_lines(file)


def test_an_epoch_is_made_of_windows_that_do_not_overlap_and_the_next_of_others() -> None:
    options = replace(TINY_OPTIONS, batch=3)
    tokens = 103
    steps = steps_an_epoch(tokens, options)

    def window_starts(first_step: int) -> np.ndarray:
        epoch_steps = range(first_step, first_step + steps)
        return np.concatenate([step_windows(tokens, options, step) for step in epoch_steps])

    first_epoch = window_starts(0)
    second_epoch = window_starts(steps)
    for starts in (first_epoch, second_epoch):
        assert len(set(starts)) == steps * 3
        assert (np.diff(np.sort(starts)) % options.block == 0).all()
        assert starts.min() >= 0
        assert starts.max() + options.block <= tokens
    assert first_epoch.tolist() != second_epoch.tolist()
    windows = step_windows(tokens, options, 4)
    assert step_windows(tokens, options, 4).tolist() == windows.tolist()
    with raises("lm.text_too_short"):
        step_windows(20, options, 0)


def test_stored_sums_are_read_back_for_the_same_text_and_refused_where_torn(tmp_path: Path) -> None:
    sums_of_split = np.random.default_rng(0).random((3, 3))
    sums = {"valid": sums_of_split, "test": sums_of_split}
    assert read_sums(tmp_path, "data", 8) is None
    write_json(tmp_path / "perplexity.json", sums_record(sums, "data", 8))
    stored_sums = read_sums(tmp_path, "data", 8)
    assert stored_sums is not None
    np.testing.assert_array_equal(stored_sums["test"], sums["test"])
    assert read_sums(tmp_path, "other", 8) is None
    for record, code in (
        ([], "lm.sums_unreadable"),
        ({"data": "data", "block": 8}, "lm.sums_unreadable"),
        ({"data": "data", "block": 8, "passages": {"valid": [[1]], "test": 2}}, "lm.sums_invalid"),
    ):
        write_json(tmp_path / "perplexity.json", record)
        with raises(code, tmp_path):
            read_sums(tmp_path, "data", 8)


@settings(max_examples=60, deadline=None)
@given(
    value=ANY_JSON,
    key_path=st.sampled_from([("passages",), ("passages", "test"), ("data",), ("block",), ()]),
)
def test_any_other_file_of_sums_is_refused_or_ignored(
    value: Any,
    key_path: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("lm")
    sums = {split: np.ones((2, 3)) for split in ("valid", "test")}
    record: Any = sums_record(sums, "data", 8)
    if key_path:
        *outer_keys, last_key = key_path
        fields = record
        for key in outer_keys:
            fields = fields[key]
        fields[last_key] = value
    else:
        record = value
    write_json(folder / "perplexity.json", record)
    try:
        stored_sums = read_sums(folder, "data", 8)
    except HeadlabError as error:
        if error.code not in ("lm.sums_unreadable", "lm.sums_invalid"):
            raise
        stored_sums = None
    if stored_sums is not None:
        assert all(sums_of_split.shape[1] == 3 for sums_of_split in stored_sums.values())


def test_a_model_learns_the_order_of_words_and_its_folder_is_whole(tmp_path: Path) -> None:
    folder = train_lm(made_splits(200), tmp_path / "lm", replace(TINY_OPTIONS, steps=60, batch=8))
    record = read_json(folder / "training.json")
    assert record["loss"]["last"] < record["loss"]["first"] - 0.3
    assert record["perplexity"]["test"]["word"] < 13  # there are 13 words, and ends of lines
    model = headlab.load(str(folder), device="cpu")
    assert model.grid.to_json() == {"decoder": [3, 3]}
    parameters = sum(parameter.numel() for parameter in model.module.parameters())
    assert record["parameters"]["whole"] == parameters
    assert [path.name for path in tmp_path.iterdir()] == ["lm"]
    sums = read_sums(folder, record["data"]["sha256"], TINY_OPTIONS.block)
    assert sums is not None
    recorded_perplexity = record["perplexity"]["test"]["word"]
    assert perplexity(sums["test"]).word == pytest.approx(recorded_perplexity)


@pytest.mark.usefixtures("one_lane")
@pytest.mark.parametrize("kind", ["all-attention", "transformer"])
def test_a_training_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, kind: str) -> None:
    options = replace(TINY_OPTIONS, kind=kind)
    lines = made_splits()
    uninterrupted_folder = train_lm(lines, tmp_path / "whole", options)
    resumed_folder = tmp_path / "parts"
    with pytest.raises(Stop):
        train_lm(lines, resumed_folder, options, watch=stop_after(4))
    steps: list[int] = []
    train_lm(
        lines,
        resumed_folder,
        options,
        watch=Watch(lambda step: steps.append(step.step)),
    )
    assert steps == [5, 6]
    assert_same_weights(resumed_folder, uninterrupted_folder)
    folder_of_other_seed = train_lm(lines, tmp_path / "other", replace(options, seed=1))
    embeddings = model_weights(uninterrupted_folder)["model.embeddings.weight"]
    embeddings_of_other_seed = model_weights(folder_of_other_seed)["model.embeddings.weight"]
    assert not torch.equal(embeddings_of_other_seed, embeddings)


def test_parts_of_a_batch_add_up_to_its_gradient() -> None:
    lines = made_splits()["train"]
    tokenizer = make_tokenizer(lines, "word", 20)

    def gradient(micro_batch: int | None) -> torch.Tensor:
        options = replace(TINY_OPTIONS, dropout=0.0, micro_batch=micro_batch)
        torch.manual_seed(0)
        model = new_model(config_of(options, tokenizer), torch.device("cpu"))
        steps = LmSteps(
            model,
            encode(tokenizer, lines),
            options,
            new_state(model, 0.0),
        )
        steps.step(2, steps.batch_at(2))
        gradients = [parameter.grad for parameter in model.parameters()]
        return torch.cat([tensor.flatten() for tensor in gradients if tensor is not None])

    torch.testing.assert_close(
        gradient(None),
        gradient(3),
        atol=1e-6,
        rtol=1e-4,
    )


def test_both_kinds_of_equal_numbers_have_about_as_many_parameters() -> None:
    tokenizer = make_tokenizer(made_sentences(20), "word", 20)
    all_attention = parameter_counts(config_of(LmOptions(kind="all-attention"), tokenizer))
    transformer = parameter_counts(config_of(LmOptions(kind="transformer"), tokenizer))
    assert abs(transformer.layers / all_attention.layers - 1) < 0.01


@pytest.mark.parametrize(
    ("options", "refusal"),
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
    tmp_path: Path,
    options: dict[str, Any],
    refusal: tuple[object, ...],
) -> None:
    with raises(*refusal):
        train_lm(made_splits(), tmp_path / "lm", replace(TINY_OPTIONS, **options))


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
    lines = made_splits()["train"]
    tokenizer = make_tokenizer(lines, "word", 20)
    model = new_model(config_of(TINY_OPTIONS, tokenizer), torch.device("cpu"))
    with torch.no_grad():
        model.model.embeddings.weight.fill_(float("nan"))
    steps = LmSteps(
        model,
        encode(tokenizer, lines),
        TINY_OPTIONS,
        new_state(model, 0.0),
    )
    with raises("training.loss_not_finite"):
        steps.step(0, steps.batch_at(0))


def test_speeds_are_ratios_to_the_first_model_of_the_same_round() -> None:
    models = {"slow": tiny_lm((2,)), "fast": tiny_lm((1,))}
    times = iter([0.0, 8.0, 0.0, 6.0, 0.0, 2.0, 0.0, 3.0] * 3)
    ratios = speeds(models, tokens=4, rounds=3, clock=lambda: next(times))
    assert ratios["slow"] == (1, 1, 1, 1, 1, 1)
    assert ratios["fast"] == (4, 4, 4, 2, 2, 2)


def test_the_command_trains_and_prints_the_perplexity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = training_command(tmp_path)
    assert main(command) == OK
    report, messages = capsys.readouterr()
    assert re.search(
        r"^train lm: \d+ forwards, about 0 s: 2 steps of 4 windows of 8 tokens; .* measured now; ",
        messages,
    )
    assert "2 heads" in report
    assert "test: perplexity" in report
    assert "passages" in report
    assert main([*command, "--kind", "lstm"]) == FAILED
    assert "all-attention or transformer" in capsys.readouterr().err
    assert main([*command, "-o", "clip=none", "-o", "pre_norm=false", "--json"]) == OK
    options = json.loads(capsys.readouterr().out)["training"]["options"]
    assert options["clip"] is None
    assert options["pre_norm"] is False
    assert main([*command, "-o", "steps=3"]) == FAILED
    assert "steps is set by --steps" in capsys.readouterr().err


def training_command(folder: Path) -> list[str]:
    """Trains a tiny model on a text that is written into the folder."""
    data = write_splits(folder / "data")
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
    command = ["train", "lm", "--data", str(data), "--out", str(folder / "lm"), "--device", "cpu"]
    return command + [f"--{name}={value}" for name, value in sizes.items()]


def test_a_text_that_names_what_is_unknown_is_trained_on(tmp_path: Path) -> None:
    lines = ["the <unk> bird", "a <|end|> tree"]
    splits = dict.fromkeys(("train", "valid", "test"), lines * 20)
    folder = train_lm(splits, tmp_path / "lm", replace(TINY_OPTIONS, vocabulary=500))
    vocabulary_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer = make_tokenizer(splits["train"], "word", 500)
    ids = tokenizer("the <unk> bird\na <|end|> tree\n").input_ids
    assert max(ids) == vocabulary_size - 1


def test_a_training_prints_its_progress_where_there_is_no_terminal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "SECONDS_BETWEEN_LINES", 0.0)
    assert main(training_command(tmp_path)) == OK
    messages = capsys.readouterr().err
    assert re.search(r"1/2 training, loss \d\.\d+, 0:00:0\d left of this part", messages)
