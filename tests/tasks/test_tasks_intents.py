"""The task `intents`: sizes, disjoint splits, balance, stability, and names that fit their context."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from support.expected_errors import raises

import headlab.tasks.intents
from headlab.tasks import task
from headlab.tasks.intents import data_versions, intents_task, read
from headlab.tasks.intents.card import TemplateJudge, ambiguous_templates, card, data_hash
from headlab.tasks.intents.classes import CLASSES, LABELS, LANGUAGES, PINNED_VERSIONS, SIZES
from headlab.tasks.intents.splits import Splits, build
from headlab.tasks.intents.templates import KINDS, SLOTS, ambiguous_groups, load_words, read_book

GOLDEN: dict[str, str] = {
    "en": "f623a0393e49d23887e3e7de788cf62293b358cd28159b63b8337a86a03dd998",
    "de": "b2e635b8b1fdc970140817d98f7455abb39f729ac596b8019708d9ff87e42065",
    "fr": "e71e2fd3016acc4efff5bcd9e1dc9dd851e949c6f06fd5a120b60f0fc3f9c240",
    "es": "24921a19c1dbfa8cc557b41bbcd031878a120258f1f07895041101be69457564",
    "ru": "9aec7f3472d451a39f9cd88532dedeaaf1973940dcbdce434367c51ed9642031",
    "bg": "09066f295dc1d7292e3fcb10f821aa46816693c52d187af5c40245a7b6b94be0",
    "el": "98121f594920bf08d961776ac4cce61c71e564f36a6d3bce80f8d79ef99b0426",
    "ar": "da65e73a73a01ffdbbe97b786d01718805af8d025150cf64a4263a06bcba8c6f",
    "th": "05d8a2a370e22ee2b4c5156d28793770df3930cfdc4a082b8852b202d01ac624",
    "vi": "74fccfaa5cd608dfe4d61a82d2d40ca0928b1038417d2e4992b6ccca4f13d139",
    "zh-CN": "5d5e5dc1c61a22960d74f8233fd84d6ff9bcda35e68b4fe6c56af68df5269cb3",
    "eu": "0627c6dafba16cd2a9354748aaf273b205c27249390d04bb5e3e473838046f6f",
    "fi": "b41ed0d78d8a6c766bcb94b9fd19398f6706a741da5e1598fd957f7ddb793f8b",
    "hu": "3cb3d1bc0ca40d38f97d9c8f703e7f3e5c3302948da61814b5c2448b88b0e977",
    "ml": "c42083728eb8e4d30114359f1ba6f93ad4cbf42bf0c464d3d81fda4666315db8",
}
every_language = pytest.mark.parametrize("language", LANGUAGES)


def folded_texts(splits: Splits, split: str) -> set[str]:
    return {example.text.casefold() for example in splits.examples[split]}


def test_seventeen_classes_and_fifteen_languages() -> None:
    assert len(LABELS) == len(set(LABELS)) == 17
    assert len(LANGUAGES) == 15
    intents = [intent for intent_class in CLASSES for intent in intent_class.intents]
    assert len(intents) == len(set(intents))


@every_language
def test_sizes_are_exact(language: str) -> None:
    intents = task("intents")
    assert len(intents.examples(language, "dev")) == 512
    assert len(intents.examples(language, "test")) == 1000
    assert len(intents.examples(language, "test", 17)) == 17
    if language == "en":
        assert len(intents.examples("en", "train")) == SIZES["train"]
    else:
        with raises("task.no_examples", "train"):
            intents.examples(language, "train")


@every_language
def test_no_template_stands_in_two_splits(language: str) -> None:
    splits = build(language, 0)
    splits_by_group: dict[str, set[str]] = {}
    for split, examples in splits.examples.items():
        for example in examples:
            splits_by_group.setdefault(example.group, set()).add(split)
    groups_of_two_splits = {group for group, names in splits_by_group.items() if len(names) > 1}
    templates = splits.book.templates
    templates_by_label = Counter(template.label for template in templates)
    # a class with a single template cannot do without it in any split
    single_templates = {
        template.group for template in templates if templates_by_label[template.label] == 1
    }
    assert groups_of_two_splits == single_templates
    expected_classes = {"set_volume"} if language == "vi" else set()
    assert {LABELS[label] for label in splits.single_template_classes} == expected_classes


@every_language
def test_groups_are_real_templates_of_their_class(language: str) -> None:
    splits = build(language, 0)
    label_by_group = {template.group: template.label for template in splits.book.templates}
    assert len(label_by_group) == len(splits.book.templates)  # no two templates share a hash
    for examples in splits.examples.values():
        assert all(label_by_group[example.group] == example.label for example in examples)


@every_language
def test_no_sentence_stands_twice(language: str) -> None:
    all_texts = []
    for examples in build(language, 0).examples.values():
        all_texts += [example.text.casefold() for example in examples]
    assert len(all_texts) == len(set(all_texts))


@every_language
def test_english_train_shares_no_sentence_with_any_dev_or_test(language: str) -> None:
    train = folded_texts(build("en", 0), "train")
    assert not train & folded_texts(build(language, 0), "dev")
    assert not train & folded_texts(build(language, 0), "test")


@every_language
def test_labels_are_balanced_as_far_as_templates_allow(language: str) -> None:
    splits = build(language, 0)
    labels_with_templates = {template.label for template in splits.book.templates}
    assert len(labels_with_templates) == (16 if language == "vi" else 17)
    for split, examples in splits.examples.items():
        counts = Counter(example.label for example in examples)
        assert set(counts) == labels_with_templates
        largest_count = max(counts.values())
        number_of_full_classes = 0
        for label in labels_with_templates:
            is_full = counts[label] >= largest_count - 1
            number_of_full_classes += is_full
            # below the others only if its templates have nothing new to say
            capacity = sum(template.capacity for template in splits.plan[split][label])
            assert is_full or counts[label] > capacity / 6
        assert number_of_full_classes >= 15


def test_english_train_is_balanced() -> None:
    counts = Counter(example.label for example in build("en", 0).examples["train"])
    assert min(counts.values()) >= 0.95 * max(counts.values())


@every_language
def test_a_prefix_is_balanced(language: str) -> None:
    examples = task("intents").examples(language, "dev", 128)
    counts = Counter(example.label for example in examples)
    assert sum(counts.values()) == 128
    counts_of_full_classes = [count for count in counts.values() if count >= 128 // 17]
    assert len(counts_of_full_classes) >= 15
    assert max(counts.values()) - min(counts_of_full_classes) <= 2


@every_language
def test_templates_of_a_class_take_turns(language: str) -> None:
    splits = build(language, 0)
    for label, templates in splits.plan["test"].items():
        examples = [example for example in splits.examples["test"] if example.label == label]
        counts = Counter(example.group for example in examples)
        counts_of_large_templates = [
            counts[template.group] for template in templates if template.capacity > 5000
        ]
        if counts_of_large_templates:
            spread = max(counts_of_large_templates) - min(counts_of_large_templates)
            assert spread <= 3, LABELS[label]


@every_language
def test_text_is_clean(language: str) -> None:
    for examples in build(language, 0).examples.values():
        for text in (example.text for example in examples):
            assert not re.search(r"[{}<>\[\]()|;\\]|%[FMNV]\b", text), text
            assert text == " ".join(text.split())
            assert len(text) > 1


def test_a_negative_seed_is_refused() -> None:
    with raises("seed.invalid", -1, 0):
        read("de", "dev", -1)


@every_language
def test_ids_are_unique_and_the_data_is_the_known_one(language: str) -> None:
    splits = build(language, 0)
    ids = [example.id for examples in splits.examples.values() for example in examples]
    assert len(ids) == len(set(ids))
    id_pattern = rf"intents/{language}/dev/00017-[0-9a-f]{{8}}"
    assert re.fullmatch(id_pattern, splits.examples["dev"][17].id)
    if data_versions() != PINNED_VERSIONS:
        pytest.skip("the golden hashes are of the pinned source packages")
    assert data_hash(splits) == GOLDEN[language]


def test_other_processes_give_the_same_data() -> None:
    languages = ("de", "th", "vi")
    code = (
        "from headlab.tasks.intents.card import data_hash\n"
        "from headlab.tasks.intents.splits import build\n"
        f"print(*(data_hash(build(language, 0)) for language in {languages}))"
    )
    expected_hashes = [data_hash(build(language, 0)) for language in languages]
    for seed in ("1", "4711"):
        process = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout.split() == expected_hashes


def test_another_seed_gives_other_data() -> None:
    assert data_hash(build("vi", 1)) != data_hash(build("vi", 0))
    assert intents_task(seed=1).examples("vi", "dev") == build("vi", 1).examples["dev"]


@every_language
def test_fillers_are_complete_and_kinds_do_not_mix(language: str) -> None:
    words = load_words(language)
    assert set(words.names) == set(KINDS)
    assert set(words.slots) == set(SLOTS)
    for fillers in [*words.names.values(), *words.slots.values()]:
        assert len(fillers) == len(set(fillers)) >= 6
    for kind in ("light", "fan", "vacuum", "climate", "media_player", "person"):
        other_kinds = [other_kind for other_kind in KINDS if other_kind != kind]
        other_names = {name for other_kind in other_kinds for name in words.names[other_kind]}
        assert not set(words.names[kind]) & other_names, kind


@pytest.mark.parametrize(
    ("label", "domain"),
    [
        ("vacuum", "vacuum"),
        ("set_temperature", "climate"),
        ("get_temperature", "climate"),
        ("get_weather", "weather"),
        ("media_skip", "media_player"),
        ("list_add", "todo"),
    ],
)
@every_language
def test_names_fit_the_context(language: str, label: str, domain: str) -> None:
    book = build(language, 0).book
    variants_with_names = []
    for template in book.templates_of(LABELS.index(label)):
        variants_with_names += [variant for variant in template.variants if variant.names]
    assert variants_with_names
    for variant in variants_with_names:
        assert variant.kinds == (domain,)
        assert set(variant.names) == set(book.words.names[domain])


def test_no_vacuum_is_called_radiator() -> None:
    radiators = load_words("en").names["climate"]
    robots = load_words("en").names["vacuum"]
    labels_without_robots = ("set_temperature", "get_temperature", "set_light", "set_volume")
    for examples in build("en", 0).examples.values():
        for example in examples:
            if LABELS[example.label] == "vacuum":
                assert not any(name in example.text for name in radiators), example.text
            if LABELS[example.label] in labels_without_robots:
                assert not any(name in example.text for name in robots), example.text


def test_the_card_is_the_data() -> None:
    committed_card = (Path(__file__).parents[2] / "docs" / "data-card.md").read_text("utf-8")
    if data_versions() != PINNED_VERSIONS:
        pytest.skip("the card is of the pinned source packages")
    assert card() == committed_card


@pytest.mark.parametrize("language", ["en", "th", "vi"])
def test_hassil_finds_the_labelled_class_and_no_other(language: str) -> None:
    splits = build(language, 0)
    judge = TemplateJudge(splits.book)
    for example in splits.examples["test"][:40]:
        assert judge.classes(example.text) == {example.label}, example.text


def test_templates_of_two_classes_are_left_out() -> None:
    book = read_book("ru", ambiguous=True)
    pause_templates = book.templates_of(LABELS.index("media_pause"))
    classes_by_group = ambiguous_templates(book, pause_templates)
    known_groups = ambiguous_groups("ru")
    assert classes_by_group
    assert classes_by_group == {group: known_groups[group] for group in classes_by_group}
    groups_in_use = {template.group for template in build("ru", 0).book.templates}
    assert not set(classes_by_group) & groups_in_use


def test_unknown_names_are_refused_with_what_exists() -> None:
    with raises("task.unknown", "'xnl1'", "intents"):
        task("xnl1")
    with raises("task.language_unknown", "'tlh'", "en, de"):
        task("intents", ["de", "tlh"])
    with raises("language.none"):
        task("intents", [])


def test_languages_are_chosen_by_name() -> None:
    assert task("intents", "all").languages == task("intents").languages == LANGUAGES
    assert task("intents", "de").languages == ("de",)
    assert task("intents", ["th", "de", "th"]).languages == ("th", "de")
    assert not task("intents").aligned
    assert task("intents").labels == LABELS


def test_a_missing_package_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(headlab.tasks.intents, "version", missing)
    with raises("package.intents_missing", "home-assistant-intents", "pip install 'headlab[demo]'"):
        read("de", "dev", 0)
