"""The data card of the embedded tasks, generated from the data.

It also says which templates fit two classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from hassil import Intents, TextSlotList, recognize_all
from home_assistant_intents import get_intents

from headlab.core import content_key
from headlab.tasks.base import SPLITS, Split
from headlab.tasks.intents import data_versions
from headlab.tasks.intents.classes import (
    CLASSES,
    LABELS,
    LANGUAGES,
    PINNED_VERSIONS,
    SIZES,
    TRAIN_LANGUAGE,
)
from headlab.tasks.intents.splits import Splits, build, dice_for
from headlab.tasks.intents.templates import (
    WILDCARDS,
    Fillers,
    Template,
    TemplateBook,
    ambiguous_groups,
    sample,
)
from headlab.tasks.slots import LABELS as SLOT_LABELS
from headlab.tasks.slots import LANGUAGES_WITHOUT_SPACES, OUTSIDE_LABEL, read

INTRO = """# Data card: tasks `intents` and `slots`

Voice commands for a home, one sentence each, in {languages} languages and {classes} classes. {train} trains
({train_size} sentences); every language has {dev} dev and {test} test sentences. Rows are *not* aligned: row i
means something else in every language. This page is generated: `python -c "from pathlib import Path;
from headlab.tasks.intents.card import write_card; write_card(Path('docs/data-card.md'))"`; a test holds it to the data.

## Sources
| package | version | licence | what it gives |
| --- | --- | --- | --- |
| `home-assistant-intents` | {intents_version} | Apache-2.0 | sentence templates, lists and rules per language |
| `hassil` | {hassil_version} | Apache-2.0 | the parser of those templates |
| headlab, `headlab/tasks/intents/fillers/` | | Apache-2.0 | names of devices, rooms, people; repairs of articles |

Another version of the packages works too, but the data differs, and with it the data hash that every result carries.
"""

METHOD = """
## How it is made
- A *template* is one entry of a `sentences` list. Entries of one class that differ only in optional words (`[...]`)
  are one template: what is left without optional words is its skeleton, and the `group` of an example is its hash.
- Templates go to splits by a seeded rule, intent by intent, those that can say much first: English
  train 50 %, dev 20 %, test 30 %; other languages dev 40 %, test 60 %. **No template stands in two splits.** The
  only exception is a class with a single template (listed below): it stands in dev and test with different sentences.
- Sentences come from a random walk: an optional part is kept half of the time, alternatives are equally likely.
  Templates of a class take turns. A name fits the device kind the template's context demands; numbers are digits.
- No sentence (case apart) stands twice in a language, in one split or in two. A sentence that two classes can say is
  left out of both, as far as it was found: by the drawing; by a pattern ("stop the timer" in zh-CN, el, ru: pause or
  cancel); or with its whole template where hassil gives most of a template's sentences to another class too
  (`ambiguous.json`, made by `card.py`). Of 200 test sentences a language, at most 2 are left that hassil
  gives to two classes.
- English train has no sentence of one word ("pause" is one in French too), and so shares no sentence with any dev or
  test (tested). A bare name ("the kitchen lamp") is not a sentence.
- Each split is in rounds of one sentence per class, so a prefix is balanced too. A class that has nothing new to say
  leaves the rounds; its share goes to the others evenly.

## Known limits
- Fillers and repairs are machine-written and not checked by native speakers.
- Inflection is respected only in part: names stand in one form, so case languages (ru, el, fi, hu, eu, ml) read
  rough; articles are repaired for de, fr, es, el by head noun, and wrong where the case or gender is not plain.
- Templates are made to *recognise* speech: they allow slips ("is my fans off") that people would seldom say.
- Splits hold out templates, not ideas: hours, minutes and seconds of one timer command are three templates.
- Numbers are digits; no speech artefacts, no typing errors, no out-of-scope sentences.
- Left out, for lack of languages or of different sentences: broadcast, fan speed, fan mode, lawn mower, search and
  play, completing or removing list items, timer status, date, time, never mind.
"""


def write_card(path: Path) -> None:
    """Write the data card of the installed data to a file."""
    path.write_text(card(), "utf-8")


def card() -> str:
    """The card as Markdown, at seed 0."""
    versions = data_versions()
    splits = {language: build(language, 0) for language in LANGUAGES}
    intro = INTRO.format(
        languages=len(LANGUAGES),
        classes=len(CLASSES),
        train=TRAIN_LANGUAGE,
        dev=SIZES["dev"],
        test=SIZES["test"],
        train_size=SIZES["train"],
        hassil_version=versions["hassil"],
        intents_version=versions["home-assistant-intents"],
    )
    classes: list[list[object]] = [
        [i, f"`{c.name}`", ", ".join(c.intents), c.meaning] for i, c in enumerate(CLASSES)
    ]
    version_note = ""
    if versions != PINNED_VERSIONS:
        version_note = f"\n**Not the pinned versions** ({PINNED_VERSIONS}).\n"
    parts = [
        intro,
        version_note,
        "## Classes\n" + table(["", "class", "intents", "meaning"], classes),
        METHOD,
        language_table(splits),
        short_table(splits),
        template_table(splits),
        samples(splits),
        slots_section(LANGUAGES),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def table(head: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines: list[list[object]] = [[*head], ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def counts(splits: Splits, split: str) -> Counter[int]:
    """Examples of each class in a split."""
    return Counter(example.label for example in splits.examples.get(split, ()))


def data_hash(splits: Splits) -> str:
    """sha256 over all splits of a language: ids, texts, labels, in order."""
    rows_by_split = {}
    for split, examples in splits.examples.items():
        rows_by_split[split] = [[example.id, example.text, example.label] for example in examples]
    return content_key(rows_by_split)


def per_split(numbers: dict[str, int]) -> str:
    """Numbers per split as train/dev/test, without splits the language lacks."""
    return "/".join(str(numbers[split]) for split in SPLITS if split in numbers)


def language_table(all_splits: dict[str, Splits]) -> str:
    """One row per language: templates, examples, exceptions."""
    rows: list[dict[str, object]] = []
    for language, splits in all_splits.items():
        template_counts = {
            split: sum(map(len, templates_by_class.values()))
            for split, templates_by_class in splits.plan.items()
        }
        example_counts = {split: len(examples) for split, examples in splits.examples.items()}
        single = ", ".join(LABELS[label] for label in splits.single_template_classes)
        rows.append(
            {
                "language": language,
                "source sentences": splits.book.sentences,
                "ambiguous templates left out": len(ambiguous_groups(language)),
                "templates": len(splits.book.templates),
                "templates per split": per_split(template_counts),
                "examples per split": per_split(example_counts),
                "classes": len({template.label for template in splits.book.templates}),
                "single-template classes": single or "none",
                "ambiguous sentences left out": splits.ambiguous,
                "repeats refused": splits.repeats,
                "data hash": data_hash(splits)[:12],
            }
        )
    return "## Languages\n" + table([*rows[0]], [[*row.values()] for row in rows])


def short_table(all_splits: dict[str, Splits]) -> str:
    """The classes with fewer examples than an equal share."""
    rows: list[list[object]] = []
    for language, splits in all_splits.items():
        for split, examples in splits.examples.items():
            class_counts = counts(splits, split)
            share = len(examples) // len(LABELS)
            for label, name in enumerate(LABELS):
                if class_counts[label] < share:
                    rows.append([language, split, f"`{name}`", class_counts[label], share])
    text = (
        "## Classes below an equal share\nTheir templates cannot say more; the other classes "
        "fill up evenly.\n\n"
    )
    return text + table(["language", "split", "class", "examples", "equal share"], rows)


def template_table(all_splits: dict[str, Splits]) -> str:
    """Templates per class and split."""
    rows: list[list[object]] = []
    for label, name in enumerate(LABELS):
        row: list[object] = [f"`{name}`"]
        for splits in all_splits.values():
            template_counts = {
                split: len(templates_by_class.get(label, ()))
                for split, templates_by_class in splits.plan.items()
            }
            row.append(per_split(template_counts))
        rows.append(row)
    head = ["class", *all_splits]
    return "## Templates per class\nEnglish train/dev/test, other languages dev/test.\n\n" + table(
        head, rows
    )


def samples(all_splits: dict[str, Splits]) -> str:
    """Two test sentences per language."""
    rows: list[list[object]] = []
    for language, splits in all_splits.items():
        rows += [[language, f"`{LABELS[e.label]}`", e.text] for e in splits.examples["test"][:2]]
    return "## Two sentences of each test split\n" + table(["language", "class", "sentence"], rows)


# The section on the task `slots`, with counts from the data.

SLOTS = """## Task `slots`
The same sentences in the same splits and order, with a label for each word: the slot of the template that it fills,
or `{outside}`. {labels} labels, plain; which they are, and their share of the words in English train:

{shares}

- Words are separated by spaces. In {unspaced}, which are written without, a word is one piece of what the template was
  put together from: a filler, or the text between two choices.
- A word that is only in part a filler ("30%", a name with a case ending) has the filler's slot.
- Slots are named as in the source; `domain`, which English lacks, counts as `{outside}`.
- A repair may lose a word's slot ("Liste Pack" becomes "Packliste"): it does in 4 of 30,680 sentences.
- Always saying `{outside}` is right for the share of words in the last column: that is what an accuracy has to beat.

{table}
"""


def slots_section(languages: Sequence[str]) -> str:
    """The section on the task `slots`, at seed 0."""
    counts_by_language = {language: word_counts(language) for language in languages}
    train = counts_by_language["en"]["train"]
    shares = ", ".join(
        f"`{name}` {percent(train, label)}" for label, name in enumerate(SLOT_LABELS)
    )
    rows = [slot_row(language, counts) for language, counts in counts_by_language.items()]
    head = [
        "language",
        "words per split",
        "labels per split",
        f"share of `{OUTSIDE_LABEL}` per split",
    ]
    return SLOTS.format(
        outside=OUTSIDE_LABEL,
        labels=len(SLOT_LABELS),
        shares=shares,
        unspaced=" and ".join(sorted(LANGUAGES_WITHOUT_SPACES)),
        table=table(head, rows),
    )


def word_counts(language: str) -> dict[Split, Counter[int]]:
    """Words of each label in the splits of a language of `slots`."""
    counts_by_split: dict[Split, Counter[int]] = {}
    for split in SPLITS:
        labels = (example.labels for example in read(language, split, 0))
        counts_by_split[split] = Counter(chain.from_iterable(labels))
    return counts_by_split


def slot_row(language: str, splits: Mapping[Split, Counter[int]]) -> list[object]:
    """One table row: a language's counts as train/dev/test, without the splits it lacks."""
    present_counts = [counts for counts in splits.values() if counts]
    words = "/".join(str(counts.total()) for counts in present_counts)
    labels = "/".join(str(len(counts)) for counts in present_counts)
    outside = "/".join(percent(counts, 0) for counts in present_counts)
    return [language, words, labels, outside]


def percent(counts: Counter[int], label: int) -> str:
    """Share of a label, in percent."""
    return f"{100 * counts[label] / counts.total():.1f} %"


# Templates whose sentences hassil also assigns to another class ("stop the timer": pause or
# cancel).

SAMPLES = 3
DOMAINS = {"opening": "binary_sensor", "occupancy": "binary_sensor"}


class TemplateJudge:
    """Finds the classes a sentence of one language may belong to, with hassil's own matcher."""

    def __init__(self, book: TemplateBook) -> None:
        """A reader of one language.

        Args:
            book: Templates and fillers of the language.
        """
        raw = dict(get_intents(book.language) or {})
        used = set(chain.from_iterable(intent_class.intents for intent_class in CLASSES))
        raw["intents"] = {name: data for name, data in raw["intents"].items() if name in used}
        self._book = book
        self._intents = Intents.from_dict(raw)
        self._lists = slot_lists(book.words)

    def classes(self, text: str) -> set[int]:
        """Labels of the classes whose templates match the text."""
        area = {"area": self._book.words.slots["area"][0]}
        results = recognize_all(
            text,
            self._intents,
            slot_lists=dict(self._lists),
            intent_context=area,
            language=self._book.language,
        )
        names = {result.intent.name for result in results}
        return {
            label for label, intent_class in enumerate(CLASSES) if names & set(intent_class.intents)
        }

    def other_classes(self, template: Template) -> set[int]:
        """Other classes that match sentences of a template; none if most sentences match none."""
        dice = dice_for(0, self._book.language, template.group)
        other_classes: set[int] = set()
        sentence_count = 0
        matching_count = 0
        for _ in range(SAMPLES):
            sentence = sample(self._book, template, dice)
            if sentence is None:
                continue
            matches = self.classes(sentence.text) - {template.label}
            other_classes |= matches
            sentence_count += 1
            matching_count += bool(matches)
        if 2 * matching_count > sentence_count:
            return other_classes
        return set()


def slot_lists(words: Fillers) -> dict[str, TextSlotList]:
    """Fillers of each open slot; the source's wildcards would match any words."""
    names = []
    for kind, names_of_kind in words.names.items():
        context = {"domain": DOMAINS.get(kind, kind)}
        names += [(name, name, context) for name in names_of_kind]
    # As in "the kitchen lights".
    rooms = [(room, room, {"domain": "light"}) for room in words.slots["area"]]
    lists = {"name": TextSlotList.from_tuples([*names, *rooms], allow_template=False)}
    return lists | {
        name: TextSlotList.from_strings(words.slots[slot], allow_template=False)
        for name, slot in WILDCARDS.items()
    }


def ambiguous_templates(book: TemplateBook, templates: Iterable[Template]) -> dict[str, list[str]]:
    """The templates that hassil also assigns to another class.

    Returns:
        {group of the template: names of the other classes}.
    """
    judge = TemplateJudge(book)
    labels_by_group = {template.group: judge.other_classes(template) for template in templates}
    names_by_group = {}
    for group, labels in sorted(labels_by_group.items()):
        if labels:
            names_by_group[group] = [CLASSES[label].name for label in sorted(labels)]
    return names_by_group
