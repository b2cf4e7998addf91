"""The page for models and data of one's own, with a real worker whose device is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from streamlit.testing.v1 import AppTest
from support.app_pages import app_on, page_text, run_page
from support.fake_client import FakeWorker
from support.fake_worker import FakeBench
from support.page_actions import press
from support.running_worker import started_worker
from support.saved_models import keep_two_classes, save_classifier

from headlab.dashboard.pages.own.data_part import (
    FROM_CHOICES,
    MAX_ERRORS,
    NO_COLUMN,
    SAME_IN_ALL_ROWS,
)
from headlab.tasks import task, task_names
from headlab.tasks.intents.classes import LABELS

pytestmark = pytest.mark.usefixtures("native_buttons")

ROWS = "text,label,language\n" + "".join(
    f"turn {i},{'ab'[i % 2]},{('de', 'fr')[i // 10]}\n" for i in range(20)
)


@pytest.fixture
def app(cache: Path) -> Iterator[None]:
    with (
        started_worker(cache, lambda: FakeBench(cache, 0.0)) as worker_run,
        app_on(cache, lambda: FakeWorker(worker_run.client)),  # type: ignore[arg-type]
    ):
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("models") / "mine")


def page_with_model(name: object) -> AppTest:
    app = run_page("own")
    app.text_input(key="own-model").set_value(str(name)).run()
    assert not app.exception
    return app


def page_with_files(*files: tuple[str, str | bytes]) -> AppTest:
    app = run_page("own")
    return upload(app, *files)


def upload(app: AppTest, *files: tuple[str, str | bytes]) -> AppTest:
    """Drop files on the page.

    Args:
        app: The page.
        files: The name and the content of each file.
    """
    uploads = []
    for name, content in files:
        data = content.encode() if isinstance(content, str) else content
        uploads.append((name, data, ""))
    app.file_uploader(key="own-files").set_value(uploads).run()
    assert not app.exception
    return app


def disabled_by_button(app: AppTest) -> dict[str, bool]:
    """Whether each of the page's own buttons is disabled, by its key."""
    buttons = [button for button in app.button if str(button.key).startswith("own-")]
    return {button.key: button.disabled for button in buttons}


def signs(app: AppTest) -> dict[str, str]:
    """The sign of every check, by its name."""
    (check_list,) = [element.value for element in app.markdown if "**Found:**" in element.value]
    sign_by_check = {}
    for line in check_list.split("  \n"):
        sign, check, *_ = line.split("**")
        sign_by_check[check.rstrip(":")] = sign[-3:].strip("[] ")
    return sign_by_check


@pytest.mark.usefixtures("app")
def test_a_model_is_checked_by_its_files_loaded_and_chosen(model: Path) -> None:
    app = page_with_model(model)
    assert set(signs(app).values()) == {"✓", "○"}
    assert "2 layers × 3 heads = 6" in page_text(app)
    assert "names of the 17 labels of task intents" in page_text(app)
    press(app, "own-load")
    assert set(signs(app).values()) == {"✓"}
    # The loaded model, which is made up here, has another grid.
    assert "2 layers × 4 heads = 8" in page_text(app)
    assert "50.0 % of its first 512 dev answers on intents in English (en) are right" in page_text(
        app
    )
    assert "forwards" in page_text(app)
    press(app, "own-use-model")
    assert app.selectbox(key="model").value == str(model)
    assert "This model is chosen in the sidebar" in page_text(app)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("spoil", "failed_check"),
    [
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            "Weights",
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"torn"), "Weights"),
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), "Weights"),
        (lambda folder: (folder / "config.json").write_text("{"), "Configuration"),
        (lambda folder: _change_config(folder, architectures=["NoSuchModel"]), "Architecture"),
        (lambda folder: keep_two_classes(folder), "Labels"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "Tokenizer"),
        (lambda folder: _lose_a_shard(folder), "Weights"),
        (
            lambda folder: _change_config(folder, architectures=["BertForTokenClassification"]),
            "Labels",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_shown_before_it_is_loaded(
    tmp_path: Path, spoil, failed_check: str
) -> None:
    spoil(save_classifier(tmp_path / "model"))
    app = page_with_model(tmp_path / "model")
    failed_checks = [check for check, sign in signs(app).items() if sign == "✗"]
    assert failed_checks == [failed_check]
    is_blocked = failed_check != "Labels"  # a label map mends these, once the model is chosen
    assert disabled_by_button(app)["own-load"] == is_blocked
    assert disabled_by_button(app)["own-use-model"] == is_blocked
    save_classifier(tmp_path / "model")  # the model is mended
    for stray_name in ("adapter_config.json", "model.safetensors.index.json"):
        (tmp_path / "model" / stray_name).unlink(missing_ok=True)
    press(app, "own-again")
    assert "✗" not in signs(app).values()


@pytest.mark.usefixtures("app")
def test_reported_05_the_page_says_what_loading_will_before_it_is_loaded(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    compiled_weights = {f"module._orig_mod.{name}": weight for name, weight in weights.items()}
    save_file(compiled_weights, folder / "model.safetensors", metadata={"format": "pt"})
    app = page_with_model(folder)
    assert signs(app)["Weights"] == "✓"
    assert "which data-parallel training and torch.compile put before their names" in page_text(app)
    assert disabled_by_button(app)["own-load"] is False
    _change_config(folder, num_hidden_layers=1)
    press(app, "own-again")
    assert signs(app)["Weights"] == "✗"
    assert "weights of 2 layers" in page_text(app)
    assert disabled_by_button(app)["own-load"] is True
    _change_config(folder, num_hidden_layers=2, num_attention_heads=4, pruned_heads={"1": [3]})
    pruned_weights = {}
    for name, weight in weights.items():
        is_pruned = "layer.1.attention.self" in name
        remaining_weight = weight[:18] if is_pruned else weight
        pruned_weights[name] = remaining_weight.clone()
    save_file(pruned_weights, folder / "model.safetensors", metadata={"format": "pt"})
    press(app, "own-again")
    assert signs(app)["Weights"] == "✗"
    assert "headlab mask convert config.json" in page_text(app)


def _lose_a_shard(folder: Path) -> None:
    """Make the weights those of which one of two files was not copied."""
    file_by_weight = {
        "bert.pooler.dense.weight": "model.safetensors",
        "classifier.weight": "model-00002-of-00002.safetensors",
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_by_weight}))


def _change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    "name", ["/no/such/folder", "../../nowhere", "no such thing", "x" * 400, "a\\b", "<b>x</b>"]
)
def test_a_model_that_is_nowhere_is_a_sentence(name: str) -> None:
    app = page_with_model(name)
    assert signs(app) == {"Found": "✗"}
    assert disabled_by_button(app)["own-use-model"]


@pytest.mark.usefixtures("app")
def test_a_long_label_is_cut() -> None:
    labels = ("short", "x" * 3000)
    rows = "".join(f"text {number},{labels[number % 2]}\n" for number in range(8))
    app = page_with_files(("long.csv", "text,label\n" + rows))
    (message,) = [text.value for text in app.success]
    assert "short" in message
    assert "x" * 40 + "…" in message
    assert "x" * 41 not in message


@pytest.mark.usefixtures("app")
def test_a_dropped_file_becomes_the_task_of_the_sidebar() -> None:
    app = page_with_files(("lights.csv", ROWS))
    chosen_columns = {box.value for box in app.selectbox if "own-" in str(box.key)}
    assert chosen_columns == {"text", "label", "language", NO_COLUMN}
    assert "French (fr) 5 dev, 5 test" in page_text(app)
    press(app, "own-save")
    assert "lights is saved" in page_text(app)
    code = [block.value for block in app.code]
    assert any('language = "language"' in text for text in code)
    assert any("tasks/lights/lights.toml" in text for text in code)
    press(app, "own-use-task")
    assert app.selectbox(key="task").value == "lights"
    assert list(app.session_state["langs"]) == ["de", "fr"]
    assert "This task is chosen in the sidebar" in page_text(app)
    assert len(task("lights").examples("de", "dev")) == 5


@pytest.mark.usefixtures("app")
def test_a_task_is_used_with_the_model_that_was_checked_above(tmp_path: Path) -> None:
    folder = keep_two_classes(save_classifier(tmp_path / "mine"), ("a", "b"))
    app = page_with_model(folder)
    upload(app, ("lights.csv", ROWS))
    press(app, "own-save")
    assert "With the model checked above" in page_text(app)
    press(app, "own-use-task")
    assert app.selectbox(key="task").value == "lights"
    assert app.selectbox(key="model").value == str(folder)
    assert "cannot do the task" not in page_text(app)


@pytest.mark.usefixtures("app")
def test_a_task_that_the_chosen_model_cannot_do_is_said_with_a_model_that_can(
    tmp_path: Path,
) -> None:
    folder = keep_two_classes(save_classifier(tmp_path / "mine"), ("a", "b"))
    app = page_with_files(("lights.csv", ROWS))
    press(app, "own-save")
    press(app, "own-use-task")
    assert "e5-small-intents cannot do the task lights: its 17 classes" in page_text(app)
    assert "do not have the names of the task's 2 labels (a, b)" in page_text(app)
    assert app.button(key="fitting-task").label.startswith("Choose the task intents")
    app.text_input(key="own-model").set_value(str(folder)).run()
    press(app, "own-use-model")
    assert "cannot do the task" not in page_text(app)
    app.selectbox(key="model").set_value("e5-small-intents").run()
    press(app, "fitting-model")
    assert app.selectbox(key="model").value == str(folder)


@pytest.mark.usefixtures("app")
def test_a_dropped_file_of_choices_for_a_language_model_becomes_a_task() -> None:
    rows = [
        {"premise": f"It is {n}, so", "options": ["yes", "no"], "gold": n % 2} for n in range(10)
    ]
    app = page_with_files(("cause.en.jsonl", "\n".join(map(json.dumps, rows))))
    questions = [radio.value for radio in app.radio if radio.label == "What is asked"]
    assert questions == [FROM_CHOICES]
    chosen_columns = set(columns_by_title(app).values())
    assert {"premise", "options", "gold"} <= chosen_columns
    assert "English (en) 5 dev, 5 test" in page_text(app)
    press(app, "own-save")
    saved_task = task("cause-en")
    assert saved_task.likelihood == "choices"
    assert saved_task.labels == ()
    assert saved_task.examples("en")[0].choices == (" yes", " no")


CONTRAST = "Contrast: the text with another right answer"
CONTRAST_ROWS = [
    (
        "turn.csv",
        "text,label,other\n" + "".join(f"on {i},{'ab'[i % 2]},off {i}\n" for i in range(9)),
    ),
    ("say.csv", "text,target,other\n" + "".join(f"on {i},t {i},off {i}\n" for i in range(9))),
    (
        "choose.jsonl",
        "\n".join(
            json.dumps(
                {"context": f"on {i}", "choices": ["a", "b"], "answer": 0, "other": f"off {i}"}
            )
            for i in range(9)
        ),
    ),
]


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(("name", "text"), CONTRAST_ROWS, ids=["labels", "targets", "choices"])
def test_a_column_of_contrasts_is_chosen_or_known_by_its_name(name: str, text: str) -> None:
    app = page_with_files((name, text))
    (contrast,) = [box for box in app.selectbox if box.label == CONTRAST]
    assert contrast.value == NO_COLUMN
    contrast.set_value("other").run()
    assert not app.exception
    press(app, "own-save")
    (example, *_) = task(name.partition(".")[0]).examples("en", "dev")
    assert example.counterfactuals == (example.text.replace("on", "off"),)
    named = page_with_files((name, text.replace("other", "counterfactual")))
    assert columns_by_title(named)[CONTRAST] == "counterfactual"


@pytest.mark.usefixtures("app")
def test_what_has_no_contrast_is_not_asked_for_one() -> None:
    app = page_with_files(("say.csv", CONTRAST_ROWS[0][1]))
    question = next(radio for radio in app.radio if radio.label == "What is asked")
    question.set_value("every token of a text (language models)").run()
    assert CONTRAST not in columns_by_title(app)
    app = page_with_files(CONTRAST_ROWS[2])
    context = next(box for box in app.selectbox if box.label == "Context")
    context.set_value(NO_COLUMN).run()
    assert not app.exception
    assert CONTRAST not in columns_by_title(app)
    assert "Every row can be read" in page_text(app)


@pytest.mark.usefixtures("app")
def test_choices_without_a_column_of_contexts_are_whole_texts() -> None:
    rows = [
        {"options": [f"The {n} cats sleep.", f"The {n} cats sleeps."], "gold": 0} for n in range(10)
    ]
    app = page_with_files(("pairs.en.jsonl", "\n".join(map(json.dumps, rows))))
    assert columns_by_title(app)["Context"] == NO_COLUMN
    press(app, "own-save")
    (example, *_) = task("pairs-en").examples("en")
    assert example.text == ""
    assert example.choices[0].startswith("The ")


@pytest.mark.usefixtures("app")
def test_errors_are_listed_by_line_with_their_number_and_nothing_can_be_saved() -> None:
    app = page_with_files(("x.csv", "text,label\nok,a\n" + "ragged\n" * 30))
    assert "30 errors; the first 20" in page_text(app)
    assert page_text(app).count("x.csv, line ") == MAX_ERRORS
    assert "own-save" not in disabled_by_button(app)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("name", "data", "word"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"a,b\n\xff,1\n", "not UTF-8"),
        ("x.csv", b"a,b\n\0,1\n", "NUL"),
        ("x.csv", b"text,label\n", "no rows"),
        ("x.csv", b"a,a\n1,2\n", "appears twice"),
        ("x.csv", b"alone\nx\ny\n", "Choose the column for: Text, Label"),
        ("x.csv", b"text|label\na|b\n", "with vertical bars in its name"),
        ("x.csv", b"text\tlabel\na\tb\n", "with tabs in its name; give the file the ending .tsv"),
        ("x.tsv", b"text,label\na,b\n", "with commas in its name; give the file the ending .csv"),
        ("../../<b>x.tsv", b"text\tlabel\n\n", "no rows"),
        ("x.conllu", b"1\tx\n", "10"),
    ],
)
def test_a_strange_file_is_a_sentence(name: str, data: bytes, word: str) -> None:
    app = page_with_files((name, data))
    assert word in page_text(app)
    assert "own-save" not in disabled_by_button(app)


@pytest.mark.usefixtures("app")
def test_files_by_language_and_split_are_known_by_their_names() -> None:
    rows = "text\tlabel\na\tx\nb\ty\n"
    app = page_with_files(
        ("de.dev.tsv", rows),
        ("de.test.tsv", rows),
        ("en.dev.tsv", rows),
        ("en.test.tsv", rows),
    )
    assert "German (de) 2 dev, 2 test; English (en) 2 dev, 2 test" in page_text(app)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("train.de.csv", "de"),
        ("de_dev.csv", "de"),
        ("zh-CN.test.csv", "zh-CN"),
        ("my.to.csv", "en"),
        ("reviews_no_2.csv", "en"),
        ("reviews.csv", "en"),
        ("fr.csv", "fr"),
        ("qq.csv", "en"),
    ],
)
def test_a_file_s_language_is_read_from_the_end_of_its_name(name: str, code: str) -> None:
    (language_field,) = [
        field
        for field in page_with_files((name, "text,label\na,x\nb,y\n")).text_input
        if "code-0" in str(field.key)
    ]
    assert language_field.value == code


def test_a_column_of_splits_is_known_by_its_name_and_values() -> None:
    app = page_with_files(("x.csv", "text,label,split\na,x,train\nb,y,validation\nc,y,test\n"))
    assert "English (en) 1 train, 1 dev, 1 test" in page_text(app)


@pytest.mark.usefixtures("app")
def test_conllu_asks_for_labels_of_words() -> None:
    word = "1\tHaus\t_\t{0}" + "\t_" * 6 + "\n\n"
    app = page_with_files(("de.conllu", word.format("NOUN") + word.format("VERB")))
    assert "2 labels: NOUN, VERB" in page_text(app)


def columns_by_title(app: AppTest) -> dict[str, str | None]:
    """What is chosen in the lists of columns, by their titles."""
    boxes = [box for box in app.selectbox if str(box.key).startswith("own-")]
    return {box.label: box.value for box in boxes}


def choose_column(app: AppTest, title: str, column: str) -> None:
    """Choose a column in the list of this title."""
    select_box = next(box for box in app.selectbox if box.label == title)
    select_box.set_value(column).run()


@pytest.mark.usefixtures("app")
def test_reported_13_the_columns_of_a_nli_file_are_recognised() -> None:
    labels = ("entailment", "neutral")
    rows = []
    for number in range(20):
        language = "de" if number < 10 else "fr"
        rows.append(f"{language},A man {number},Somebody {number},{labels[number % 2]}")
    app = page_with_files(("nli.csv", "lang,premise,hypothesis,gold\n" + "\n".join(rows)))
    expected_columns = {
        "Text": "premise",
        "Second text": "hypothesis",
        "Label": "gold",
        "Language": "lang",
    }
    assert expected_columns.items() <= columns_by_title(app).items()
    assert "2 labels: entailment, neutral" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_nothing_is_green_before_every_column_is_chosen() -> None:
    rows = "".join(f"so {n} it goes,{'ab'[n % 2]},{n}\n" for n in range(20))
    app = page_with_files(("x.csv", "eins,zwei,drei\n" + rows))
    assert columns_by_title(app)["Text"] is None
    assert columns_by_title(app)["Label"] is None
    assert not app.success
    assert "own-save" not in disabled_by_button(app)
    assert "Choose the column for: Text, Label. The columns are eins, zwei, drei." in page_text(app)
    choose_column(app, "Text", "eins")
    choose_column(app, "Label", "zwei")
    assert "2 labels: a, b" in page_text(app)
    assert "own-save" in disabled_by_button(app)


@pytest.mark.usefixtures("app")
def test_reported_13_a_column_of_languages_that_cannot_be_read_is_not_taken_for_english() -> None:
    rows = ""
    for number in range(10):
        rows += f"German,turn {2 * number},a\n"
        rows += f"deu,turn {2 * number + 1},b\n"
    app = page_with_files(("x.csv", "Lang,text,label\n" + rows))
    assert not app.success
    assert "Choose the column for: Language. The columns are Lang, text, label." in page_text(app)
    choose_column(app, "Language", SAME_IN_ALL_ROWS)
    assert "English (en) 10 dev, 10 test" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_a_file_without_a_header_brings_a_warning() -> None:
    rows = ""
    for number in range(10):
        rows += f"de,turn {2 * number},a\n"
        rows += f"fr,turn {2 * number + 1},b\n"
    app = page_with_files(("x.csv", rows))
    (warning,) = [text.value for text in app.warning]
    assert "but de and a are values further down too" in warning


@pytest.mark.usefixtures("app")
def test_reported_13_other_separators_are_one_error_not_one_a_row() -> None:
    rows = "".join(f"well, turn {n}|{'ab'[n % 2]}\n" for n in range(20))
    app = page_with_files(("x.csv", "text|label\n" + rows))
    (error,) = [text.value for text in app.error]
    assert error.startswith("1 error")
    assert "with vertical bars in its name; put commas between the columns" in error
    assert "own-save" not in disabled_by_button(app)


@pytest.mark.usefixtures("app")
def test_reported_22_semicolons_with_a_byte_order_mark_are_read_as_excel_writes_them() -> None:
    rows = "".join(f"well, turn {n};{'ab'[n % 2]}\r\n" for n in range(20))
    app = page_with_files(("x.csv", b"\xef\xbb\xbf" + f"text;label\r\n{rows}".encode()))
    assert {"Text": "text", "Label": "label"}.items() <= columns_by_title(app).items()
    assert "2 labels: a, b" in page_text(app)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("name", ["de.tsv", "de.conll", "de.conllu", "de.txt"])
def test_reported_22_one_token_a_line_is_labels_of_words_whatever_its_ending(name: str) -> None:
    app = page_with_files((name, "Der\tDET\nHund\tNOUN\n\nDie\tDET\nKatze\tNOUN\n"))
    assert {"Words": "1", "Labels of the words": "2"}.items() <= columns_by_title(app).items()
    assert "2 labels: DET, NOUN" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_lists_in_other_columns_make_no_labels_of_words() -> None:
    # SNLI and MNLI have rows like these.
    rows = [
        {
            "annotator_labels": ["neutral"] * 5,
            "gold_label": ("neutral", "-")[n % 2],
            "sentence1": f"a {n}",
            "sentence2": f"b {n}",
        }
        for n in range(20)
    ]
    app = page_with_files(("snli.jsonl", "\n".join(map(json.dumps, rows))))
    expected_columns = {"Text": "sentence1", "Second text": "sentence2", "Label": "gold_label"}
    assert expected_columns.items() <= columns_by_title(app).items()
    assert "2 labels: -, neutral" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_no_column_has_two_meanings() -> None:
    app = page_with_files(("x.csv", ROWS))
    choose_column(app, "Label", "language")
    assert not app.success
    assert "label and language are both column language" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_the_model_s_class_names_tell_the_label_column(model: Path) -> None:
    rows = []
    for number in range(30):
        label = LABELS[number % 3].upper()
        rows.append(f"web{number % 2},turn {number},{label},{number % 2}")
    app = page_with_model(model)
    upload(app, ("x.csv", "site,text,c,tag\n" + "\n".join(rows)))
    assert columns_by_title(app)["Label"] == "c"
    assert f"Each label is the name of a class of {model}" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_13_a_warning_names_labels_that_the_model_lacks_and_what_to_do(
    model: Path,
) -> None:
    labels = (LABELS[0], LABELS[1], "nonsense")
    rows = "".join(f"turn {number},{labels[number % 3]}\n" for number in range(30))
    app = page_with_model(model)
    upload(app, ("x.csv", "text,label\n" + rows))
    (warning,) = [text.value for text in app.warning]
    assert warning.startswith("1 of the 3 labels is not a class of")
    assert "(10 times)" in warning
    assert "nonsense" in warning
    assert "--label-map" in warning


@pytest.mark.usefixtures("app")
def test_reported_13_labels_are_counted_in_every_language_before_the_task_is_saved() -> None:
    app = page_with_files(("x.csv", ROWS + "turn 20,a,fr\n"))
    (counts,) = [table.value for table in app.dataframe if "Label" in table.value]
    assert counts.to_dict("list") == {
        "Label": ["a", "b"],
        "All": [11, 10],
        "German (de)": [5, 5],
        "French (fr)": [6, 5],
    }


@pytest.mark.usefixtures("app")
def test_reported_11_the_page_says_how_many_texts_are_in_dev_and_test() -> None:
    rows = "text,label\n" + "".join(f"turn {n},{'ab'[n % 2]}\n" for n in range(10))
    app = page_with_files(("de.dev.csv", rows), ("de.test.csv", rows + "turn more,a\n"))
    assert "10 of the 11 test texts are in dev too" in page_text(app)


@pytest.mark.usefixtures("app")
def test_reported_11_the_page_divides_equal_texts_to_one_side() -> None:
    five_rows = "".join(f"turn {n},{'ab'[n % 2]}\n" for n in range(5))
    app = page_with_files(("lights.csv", "text,label\n" + 8 * five_rows))
    assert "rows with equal texts are all in dev or all in test" in page_text(app)
    press(app, "own-save")
    lights = task("lights")
    dev_texts = {example.text for example in lights.examples("en", "dev")}
    test_texts = {example.text for example in lights.examples("en", "test")}
    assert dev_texts
    assert test_texts
    assert not dev_texts & test_texts


@pytest.mark.usefixtures("app")
def test_a_taken_name_is_refused_and_what_was_chosen_stays() -> None:
    app = page_with_files(("intents.csv", ROWS))
    assert "is the name of a task that comes with headlab" in page_text(app)
    press(app, "own-save")
    assert "Not saved: there is already another task intents" in page_text(app)
    (name_field,) = [field for field in app.text_input if str(field.key).startswith("own-name")]
    name_field.set_value("mine").run()
    assert "Not saved" not in page_text(app)
    press(app, "own-save")
    assert "mine is saved" in page_text(app)
    assert task_names()[-1] == "mine"


def test_a_worker_with_a_cache_of_its_own_says_who_knows_the_task(
    cache: Path, tmp_path: Path
) -> None:
    worker_cache = tmp_path / "elsewhere"
    worker_cache.mkdir()
    with (
        started_worker(worker_cache, lambda: FakeBench(worker_cache, 0.0)) as worker_run,
        app_on(cache, lambda: FakeWorker(worker_run.client)),
    ):
        app = page_with_files(("lights.csv", ROWS))
        press(app, "own-save")
        assert "only the worker knows it" in page_text(app)
        assert "own-use-task" not in disabled_by_button(app)
    assert (worker_cache / "tasks" / "lights" / "lights.toml").is_file()
