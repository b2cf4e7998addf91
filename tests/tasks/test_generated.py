"""Tasks for language models made of headlab's own words: what is balanced, what is right, what stays the same."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from support.expected_errors import raises

from headlab.tasks import SPLITS, Example, Split, Task
from headlab.tasks.generated import agreement_task, ioi_task, needle_task, repeats_task
from headlab.tasks.needle import TEXTS
from headlab.tasks.registry import source_of
from headlab.tasks.registry import task as task_named

TASK_MAKERS: tuple[Callable[..., Task], ...] = (
    repeats_task,
    ioi_task,
    agreement_task,
    needle_task,
)
WITH_CHOICES = [
    (ioi_task, "en"),
    *((agreement_task, language) for language in ("en", "de", "fr", "es")),
    *((needle_task, language) for language in ("en", "de", "fr", "es")),
]
TASKS_AND_LANGUAGES = [(repeats_task, "en"), *WITH_CHOICES]
VERBS = {
    "en": ("is was has", "are were have"),
    "de": ("ist war hat", "sind waren haben"),
    "fr": ("est était a", "sont étaient ont"),
    "es": ("es era ha está", "son eran han están"),
}
# Texts of the dev split, read by a person: whether the verb is plural.
PLURAL_BY_TEXT = {
    ("en", "The rings that the students saw in front of the doors"): True,
    ("en", "The ring that the doctors noticed behind the tables"): False,
    ("en", "The man next to the cabinets that the driver saw"): False,
    ("en", "The guests who visited the lawyer"): True,
    ("de", "Der Bäcker, der dem Sänger vor den Hotels dankte,"): False,
    ("de", "Die Fenster, die die Frauen sahen,"): True,
    ("de", "Die Lampe vor der Tür, die die Maler malten,"): False,
    ("de", "Die Lehrerinnen, die du meinst,"): True,
    ("fr", "Les voitures que l'écrivain regardait"): True,
    ("fr", "La fenêtre à côté des ponts que les avocats regardaient"): False,
    ("fr", "L'étudiant qui écoutait les boulangères à côté des voitures"): False,
    ("fr", "Les photos devant les jardins que l'homme cherchait"): True,
    ("es", "Los médicos que saludaban al conductor"): True,
    ("es", "El barco cerca de las casas que el abogado admiraba"): False,
    ("es", "Las llaves cerca de la escritora"): True,
    ("es", "La profesora que esperaba al hombre junto al armario"): False,
}


def examples_of_all_splits(task: Task, language: str) -> list[Example]:
    examples = []
    for split in SPLITS:
        examples += task.examples(language, split)
    return examples


def share(outcomes: list[bool]) -> float:
    return sum(outcomes) / len(outcomes)


def right_choice(example: Example) -> str:
    choice = example.choices[example.label]
    return choice.removeprefix(" ")


def wrong_choice(example: Example) -> str:
    choice = example.choices[1 - example.label]
    return choice.removeprefix(" ")


@pytest.mark.parametrize(("make", "language"), TASKS_AND_LANGUAGES)
def test_splits_have_their_sizes_and_share_no_text(make: Callable[..., Task], language: str):
    task = make()
    assert task.likelihood == ("tokens" if task.name == "repeats" else "choices")
    assert not task.labels
    assert not task.aligned
    sizes = {}
    for split in SPLITS:
        sizes[split] = len(task.examples(language, split))
    assert sizes == {"train": 512, "dev": 512, "test": 1000}
    examples = examples_of_all_splits(task, language)
    texts = {example.text for example in examples}
    ids = {example.id for example in examples}
    total_size = sum(sizes.values())
    assert len(texts) == len(ids) == total_size
    for example in examples:
        assert example.text == " ".join(example.text.split())
        assert example.group


@pytest.mark.parametrize(
    ("make", "language", "hash_beginning"),
    [
        (repeats_task, "en", "119a2ace4c456dcc"),
        (ioi_task, "en", "db64a1dc5bf0dd95"),
        (agreement_task, "en", "371eb7d325ce2349"),
        (agreement_task, "de", "0588b7b20e689048"),
        (agreement_task, "fr", "0daf21553032abcc"),
        (agreement_task, "es", "83790cd1041e6463"),
        (needle_task, "en", "38455cc2bf687226"),
        (needle_task, "de", "9291bb6fca2e1944"),
        (needle_task, "fr", "7d907d6ac6454df2"),
        (needle_task, "es", "adc289c96e4d422f"),
    ],
)
def test_texts_are_the_same_on_every_machine(
    make: Callable[..., Task], language: str, hash_beginning: str
):
    task = make()
    examples = task.examples(language, "dev")
    task_of_seed_0 = make(None, 0)
    assert examples == task_of_seed_0.examples(language, "dev")
    data_hash = task.data_hash(examples)
    assert data_hash[:16] == hash_beginning


@pytest.mark.parametrize(("make", "language"), TASKS_AND_LANGUAGES)
def test_another_seed_gives_other_texts(make: Callable[..., Task], language: str):
    examples = make(seed=0).examples(language, "dev")
    examples_of_other_seed = make(seed=1).examples(language, "dev")
    texts = [example.text for example in examples]
    texts_of_other_seed = [example.text for example in examples_of_other_seed]
    # a noun with an adverb is soon drawn again
    shared_texts = set(texts) & set(texts_of_other_seed)
    assert len(shared_texts) < 200
    assert texts[:20] != texts_of_other_seed[:20]


@pytest.mark.parametrize("make", TASK_MAKERS)
def test_a_negative_seed_is_refused(make: Callable[..., Task]):
    with raises("seed.invalid"):
        make(seed=-1).examples("en", "dev")


def test_every_word_of_a_repetition_can_be_copied():
    task = repeats_task()
    used: set[str] = set()
    for example in examples_of_all_splits(task, "en"):
        start, *words = example.text.split(" ")
        assert start == "Words:"
        assert len(words) == 29
        assert len(set(words)) == 28
        assert words[0] == words[28]
        copied_words = [f" {word}" for word in words[1:28]]
        assert example.target == "".join(copied_words)
        assert example.group == example.id
        used |= set(words)
    assert len(used) >= 400
    assert all(re.fullmatch("[a-z]{3,6}", word) for word in used)
    first_ids = [example.id for example in task.examples("en", "dev", 2)]
    assert first_ids == ["repeats-dev-0", "repeats-dev-1"]


@pytest.mark.parametrize(("make", "language"), WITH_CHOICES)
@pytest.mark.parametrize("split", SPLITS)
def test_neither_choice_is_right_more_often(make: Callable[..., Task], language: str, split: Split):
    examples = make().examples(language, split)
    for example in examples:
        assert len(example.choices) == 2
        assert len(set(example.choices)) == 2
        assert all(re.fullmatch(r" \w+", choice) for choice in example.choices)
    is_first_right = [example.label == 0 for example in examples]
    assert share(is_first_right) == pytest.approx(0.5, abs=0.01)
    assert share(is_first_right[:200]) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize(("make", "language"), WITH_CHOICES)
def test_a_prefix_is_a_random_subset_not_a_few_groups(make: Callable[..., Task], language: str):
    examples = make().examples(language, "test")
    groups_of_prefix = {example.group for example in examples[:64]}
    groups = {example.group for example in examples}
    assert len(groups_of_prefix) > 20
    assert len(groups) >= 30


def test_the_right_name_is_said_once_and_stands_first_half_of_the_time():
    examples = examples_of_all_splits(ioi_task(), "en")
    is_right_name_first = []
    is_first_name_first_choice = []
    for example in examples:
        right = right_choice(example)
        wrong = wrong_choice(example)
        names_in_text = re.findall(rf"\b(?:{right}|{wrong})\b", example.text)
        assert sorted(names_in_text) == sorted([right, wrong, wrong])
        first_name, _, third_name = names_in_text
        assert third_name == wrong
        assert example.text.endswith((" to", " for"))
        order = "ABBA" if first_name == right else "BABA"
        assert example.group.endswith(order)
        is_right_name_first.append(first_name == right)
        first_choice, second_choice = example.choices
        is_first_name_first_choice.append(first_choice == f" {first_name}")
        assert not first_choice.startswith(second_choice)
        assert not second_choice.startswith(first_choice)
    assert share(is_right_name_first) == pytest.approx(0.5, abs=0.01)
    assert share(is_first_name_first_choice) == pytest.approx(0.5, abs=0.01)
    names = set()
    for example in examples:
        names |= set(example.choices)
    groups = {example.group for example in examples}
    assert len(names) >= 60
    assert len(groups) >= 30
    wrong_article = re.compile(r"\ba [aeiou]|\ban [^aeiou]")
    assert not any(wrong_article.search(example.text) for example in examples)


SINGULAR_NOUNS_WITH_DIE = (
    "Frau",
    "Flasche",
    "Karte",
    "Lampe",
    "Tasche",
    "Kiste",
    "Kamera",
    "Uhr",
    "Tür",
    "Brücke",
    "Kirche",
)


def is_subject_plural(language: str, text: str) -> bool:
    """Whether the subject is plural, from the first words, by rules other than those that made the text."""
    article, noun = re.findall(r"\w+", text)[:2]
    if language == "en":
        return noun.endswith("s") or noun in ("children", "men", "women")
    if language in ("fr", "es"):
        return article in ("Les", "Los", "Las")
    is_singular_noun = noun.endswith("in") or noun in SINGULAR_NOUNS_WITH_DIE
    return article == "Die" and not is_singular_noun


@pytest.mark.parametrize("language", VERBS)
def test_the_number_of_the_subject_decides(language: str):
    singular, plural = (verbs.split() for verbs in VERBS[language])
    plural_of = dict(zip(singular, plural, strict=True))
    examples = examples_of_all_splits(agreement_task(), language)
    for example in examples:
        if is_subject_plural(language, example.text):
            assert plural_of[wrong_choice(example)] == right_choice(example), example.text
        else:
            assert plural_of[right_choice(example)] == wrong_choice(example), example.text
    right_verbs = [right_choice(example) for example in examples]
    assert set(right_verbs) == {*singular, *plural}
    is_plural = [verb in plural for verb in right_verbs]
    assert share(is_plural) == pytest.approx(0.5, abs=0.01)
    group_endings = {example.group.rpartition("-")[2] for example in examples}
    assert len(group_endings) >= 40


@pytest.mark.parametrize("language", VERBS)
def test_the_verb_is_right_in_texts_that_a_person_read(language: str):
    examples = agreement_task().examples(language, "dev")
    right_verbs = {example.text: right_choice(example) for example in examples}
    for (text_language, text), is_plural in PLURAL_BY_TEXT.items():
        if text_language == language:
            assert right_verbs[text] in VERBS[language][is_plural].split()


def test_other_nouns_mislead_half_of_the_time():
    """English articles show which words are nouns, and only a noun shows its number there.

    The subject is followed by 0, 1 or 2 nouns; the last of them has the number of the subject half of the time.
    """
    counts_of_other_nouns = []
    is_last_noun_like_subject = []
    for example in examples_of_all_splits(agreement_task(), "en"):
        nouns = re.findall(r"\b[Tt]he (\w+)", example.text)
        is_plural = [is_subject_plural("en", f"The {noun}") for noun in nouns]
        assert len(set(nouns)) == len(nouns)
        counts_of_other_nouns.append(len(nouns) - 1)
        if len(nouns) > 1:
            is_last_noun_like_subject.append(is_plural[-1] == is_plural[0])
    for n in (0, 1, 2):
        has_n_nouns = [count == n for count in counts_of_other_nouns]
        assert 0.15 < share(has_n_nouns) < 0.5
    assert share(is_last_noun_like_subject) == pytest.approx(0.5, abs=0.05)


# No text of a language may match: two words that must be contracted, an article of another case
# or number than its noun, a relative clause without its comma.
NEVER_MATCHES = {
    "de": r"\b(?:neben|hinter|vor|bei) "
    r"(?:die|das|der \w+(?:innen|er)|dem \w+innen|den \w+[^ns\W])\b|\bbei dem\b"
    r"|\bDer \w+, (?!de[rn] )|\bDas \w+, (?!das )|\bDie \w+, (?!die )"
    r"|\bde[nr] \w+, (?!die )|\bdem \w+, (?!den |das )",
    "fr": r"\bde les?\b|\bdu [aeiouéh]|\bl[ea] [aeiouéh]|\bl'[^aeiouéh]"
    r"|\b[ld]es \w+[^sx\W]\b|\b(?:l'|l[ea] )\w+s\b",
    "es": r"\b(?:a|de) el\b|\bl[oa]s (?!que )\w+[^s\W]\b|\b(?:el|la|del|al) \w+s\b",
}


@pytest.mark.parametrize("language", NEVER_MATCHES)
def test_articles_endings_and_commas_fit(language: str):
    for example in examples_of_all_splits(agreement_task(), language):
        text = example.text
        searched_text = text
        if language != "de":
            searched_text = text[0].lower() + text[1:]
        assert not re.search(NEVER_MATCHES[language], searched_text), text
        comma_count = 2 if text.endswith(",") else 0
        assert text.count(",") == comma_count, text
        assert language == "de" or "," not in text


@pytest.mark.parametrize("split", SPLITS)
def test_the_counterfactual_of_two_names_says_the_other_one_again(split: Split) -> None:
    for example in ioi_task().examples("en", split):
        (contrast,) = example.counterfactuals
        right, wrong = example.choices[example.label], example.choices[1 - example.label]
        assert len(re.findall(rf"\b{wrong.strip()}\b", example.text)) == 2
        assert len(re.findall(rf"\b{right.strip()}\b", contrast)) == 2
        assert len(re.findall(rf"\b{wrong.strip()}\b", contrast)) == 1
        different = [
            one
            for one in zip(example.text.split(), contrast.split(), strict=True)
            if one[0] != one[1]
        ]
        assert len(different) == 1


@pytest.mark.parametrize("language", ["en", "de", "fr", "es"])
def test_a_counterfactual_subject_is_in_the_other_number(language: str) -> None:
    """The first keeps the noun, so that nothing else differs; all others have other subjects."""
    examples = agreement_task().examples(language, "dev", 128)
    texts = {example.text: example for example in examples}
    for example in examples:
        assert len(set(example.counterfactuals)) > 10
        assert example.text not in example.counterfactuals
        twin = texts.get(example.counterfactuals[0])
        assert twin is None or set(twin.counterfactuals).isdisjoint({twin.text})
    by_hand = {
        "en": ("The rings that", "The ring that"),
        "de": ("Die Fenster, die", "Das Fenster, das"),
        "fr": ("Les voitures que", "La voiture que"),
        "es": ("Las llaves cerca", "La llave cerca"),
    }[language]
    known = [e for e in agreement_task().examples(language, "dev") if e.text.startswith(by_hand[0])]
    assert known
    assert all(example.counterfactuals[0].startswith(by_hand[1]) for example in known)


# Needles: the beginning of every text says who is in which city, its end asks for one of them.


def cities_by_name(language: str, text: str) -> dict[str, str]:
    """What a person reads in the second and third sentence."""
    facts = text.split(". ")[1:3]
    return {fact.split()[0]: fact.split()[-1] for fact in facts}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("words", [1, 30, 120, 400])
def test_the_fact_that_is_asked_for_stands_early_and_far_from_the_question(
    language: str, words: int
) -> None:
    examples = needle_task(words=words).examples(language, "dev", 128)
    is_first_asked = []
    for example in examples:
        cities = cities_by_name(language, example.text)
        assert len(cities) == len(set(cities.values())) == 2
        name, *_ = example.text.rpartition(TEXTS[language].reminder)[2].split()
        assert right_choice(example) == cities[name]
        assert wrong_choice(example) in cities.values()
        is_first_asked.append(next(iter(cities)) == name)
        for city in cities.values():
            assert example.text.split().count(f"{city}.") == 1
        _, _, between = example.text.partition(". ".join(example.text.split(". ")[1:3]) + ".")
        between, _, question = between.rpartition(TEXTS[language].reminder)
        assert words <= len(between.split()) < words + 12
        assert len(question.split()) <= 5
        assert not any(city in between + question for city in cities.values())
        # The counterfactual is the same with both cities in each other's place.
        (contrast,) = example.counterfactuals
        assert sorted(contrast.split()) == sorted(example.text.split())
        assert cities_by_name(language, contrast)[name] == wrong_choice(example)
    assert share(is_first_asked) == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("language", TEXTS)
def test_all_between_is_said_before_anything_is_said_again(language: str) -> None:
    sentences = TEXTS[language].between
    assert len(set(sentences)) == len(sentences) == 24
    for example in needle_task(words=400).examples(language, "dev", 16):
        counts = {example.text.count(sentence) for sentence in sentences}
        assert max(counts) - min(counts) <= 1
        assert min(counts) >= 1


def test_a_needle_of_another_length_is_a_task_of_its_own() -> None:
    usual, longer = task_named("needle"), task_named("needle:400")
    assert (usual.name, longer.name) == ("needle", "needle:400")
    assert task_named("needle:120").name == "needle"
    assert task_named("needle:0400").name == "needle:400"
    assert longer.languages == usual.languages == tuple(TEXTS)
    dev = [task.examples("en", "dev") for task in (usual, longer)]
    assert usual.data_hash(dev[0]) != longer.data_hash(dev[1])
    assert {example.id for example in dev[0]}.isdisjoint(example.id for example in dev[1])
    assert source_of("needle:400") == source_of("needle")


@pytest.mark.parametrize(
    "name",
    ["needle:", "needle:0", "needle:-4", "needle:4.5", "needle:50001", "needle:a", "needle:٣٠"],
)
def test_a_length_that_is_none_is_refused(name: str) -> None:
    with raises("task.needle_words", 120):
        task_named(name)
    with raises("task.unknown"):
        task_named("needles")
