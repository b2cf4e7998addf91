"""Which column of a file means what.

Its name tells, its values, and the names of a model's classes.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

from headlab.tasks.labels import are_nameless, class_text, meaning, write_label_map
from headlab.tasks.labels import plain as plain_name

# Names of columns by what they mean, as `plain_header` writes them: in English, German, French,
# Spanish and Italian.

NAMES: Mapping[str, str] = {
    "text": (
        "texts?|text_?[1a]|sentence_?[1a]?|premise|review|utterance|source|src|question_?1?|"
        "query|comment|tweet|title|body|content|input|document|passage|s1|utt|review_(body|text)|satz_?[1a]?|"
        "aussage|ae?usserung|kommentar|frage|quelle|prae?misse|phrase_?1?|texte_?1?|premisse|"
        "commentaire|avis|enonce|oracion|frase|texto|testo|commento|premisa|premessa"
    ),
    "pair": (
        "pair|hypothesis|sentence_?[2b]|text_?[2b]|question_?2|s2|satz_?[2b]|hypothese|"
        "phrase_?2|texte_?2|hipotesis|ipotesi"
    ),
    "label": (
        "labels?|gold|gold_?labels?|class|target|intent|category|stars|tag|y|sentiment|"
        "rating|topic|emotion|label_(name|text)|etikett|klasse|kategorie|absicht|ziel|"
        "stimmung|thema|etiquette|classe|categorie|intention|cible|etiqueta|clase|categoria|"
        "intencion|etichetta"
    ),
    "target": (
        "target|translation|summary|reference|tgt|output|ue?bersetzung|zusammenfassung|ziel|"
        "traduction|resume|cible|traduccion|resumen|traduzione"
    ),
    "context": (
        "context|question|premise|stem|ctx|query|prompt|text|sentence|kontext|frage|contexte|pregunta"
    ),
    "choices": (
        "choices|options|endings|candidates|continuations|auswahl|antworten|choix|reponses|opciones"
    ),
    "answer": (
        "answer(_?key)?|label|gold|right|correct|solution|antwort|loe?sung|reponse|respuesta"
    ),
    "counterfactual": "counterfactual(_?text)?|contrast(_?text)?|corrupt(ed)?(_?text)?",
    "words": "words|tokens|form|woe?rter|mots|palabras|parole",
    "labels": "labels|tags|upos|pos|pos_tags|ner|ner_tags|etiketten|etiquettes|etiquetas",
    "language": (
        "lang(uage)?(_(code|id))?|locale|lng|iso_code|sprache|sprachcode|sprachkue?rzel|"
        "(code_)?langue|idioma|lengua|lingua"
    ),
    "split": ("split|set|partition|subset|dataset_split|teilmenge|aufteilung|ensemble|particion"),
}
# Where a text may come from as well, so that its values must be texts.
WEAK_TEXTS = "source|src|title|content|input|document|quelle"
# Columns that belong together: where both are there, they are the two texts.
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text", "text2"),
    ("text", "text_2"),
    ("text", "text_b"),
    ("text", "pair"),
    ("sentence", "sentence2"),
    ("question1", "question2"),
    ("question_1", "question_2"),
    ("question", "sentence"),
    ("query", "passage"),
    ("query", "document"),
    ("s1", "s2"),
    ("satz1", "satz2"),
    ("satz_1", "satz_2"),
    ("satz_a", "satz_b"),
    ("pramisse", "hypothese"),
    ("praemisse", "hypothese"),
    ("premisse", "hypothese"),
    ("phrase1", "phrase2"),
    ("phrase_1", "phrase_2"),
    ("texte1", "texte2"),
    ("texte_1", "texte_2"),
    ("premisa", "hipotesis"),
    ("premessa", "ipotesi"),
)
ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy "
    "da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht "
    "hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky "
    "la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny "
    "oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss "
    "st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo "
    "za zh zu"
)
CODES = frozenset(ISO_639_1.split())
# Codes that are answers or small words too, so that these alone do not tell a column of languages.
ANSWERS = frozenset({"no", "si", "is", "it", "to", "so", "or", "as", "an", "am", "he"})
CODE = re.compile(r"([A-Za-z]{2,3})([-_][A-Za-z0-9]{2,8})*")
MAX_LABELS = 200
FEW_ROWS = 20  # of so few, the number of different values tells nothing

Values = Mapping[str, Sequence[object]]


def plain_header(name: str) -> str:
    """A column's name in a form to compare.

    It has no case, accents or byte order mark, and _ for anything else between its words.
    """
    split_words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    letters = unicodedata.normalize("NFKD", split_words).casefold()
    return re.sub(
        r"[\W_]+", "_", "".join(c for c in letters if not unicodedata.combining(c))
    ).strip("_")


# Meanings in the order in which columns are chosen for them, after languages, splits and pairs.
GUESSED_BY_NAME = (
    "words",
    "labels",
    "choices",
    "counterfactual",
    "label",
    "answer",
    "target",
    "text",
    "pair",
    "context",
)


def guess_columns(
    values: Values, meanings: Iterable[str], classes: Sequence[str] = ()
) -> dict[str, str]:
    """The columns whose meaning is certain enough; the others are for a person to choose.

    Args:
        values: the first values of each column, in the order of the columns.
        meanings: what columns are wanted for; keys of NAMES.
        classes: the names of the classes of the model that the file is for, if it is known.

    Returns:
        A column for a meaning, none of them twice. A meaning that no column, or more than one,
        could have is left out.
    """
    wanted_meanings = list(meanings)
    columns_by_meaning: dict[str, str] = {}
    for name in ("language", "split"):
        columns = _columns_named(values, name, columns_by_meaning)
        _choose(columns_by_meaning, wanted_meanings, name, columns)
    _choose_pair(columns_by_meaning, wanted_meanings, values)
    for name in GUESSED_BY_NAME:
        columns = _columns_named(values, name, columns_by_meaning)
        if name == "label":
            columns = _label_columns(values, columns_by_meaning, classes) or columns
        _choose(columns_by_meaning, wanted_meanings, name, columns)
    columns = _columns_of_codes(values, columns_by_meaning)
    _choose(columns_by_meaning, wanted_meanings, "language", columns)
    return {
        name: columns_by_meaning[name] for name in wanted_meanings if name in columns_by_meaning
    }


def unsure_meanings(
    values: Values, meanings: Iterable[str], columns_by_meaning: Mapping[str, str]
) -> set[str]:
    """The meanings without a column that only a person can assign.

    Some column may have each of them.

    Args:
        values: the first values of each column.
        meanings: what columns are wanted for; keys of NAMES.
        columns_by_meaning: a column for each meaning that is certain, as `guess_columns` gives it.
    """
    free = [column for column in values if column not in columns_by_meaning.values()]
    unsure = {
        name
        for name in meanings
        if name not in columns_by_meaning and any(_is_named(column, name) for column in free)
    }
    if (
        "language" in meanings
        and "language" not in columns_by_meaning
        and _columns_of_codes(values, columns_by_meaning)
    ):
        unsure.add("language")
    return unsure


def is_known_name(column: str) -> bool:
    """Whether a column is called as columns of some meaning are."""
    return any(_is_named(column, meaning) for meaning in NAMES)


def columns_named_as_values(values: Values) -> list[str]:
    """The columns whose name is one of their values too.

    The first row of such a file may be no header.

    Args:
        values: The first values of each column.
    """
    return [column for column, of_column in values.items() if column.strip() in _texts(of_column)]


def _choose(
    columns_by_meaning: dict[str, str],
    wanted_meanings: Sequence[str],
    name: str,
    columns: Sequence[str],
) -> None:
    """Choose a column for a meaning that is wanted and has none, if there is only one for it."""
    if name in wanted_meanings and name not in columns_by_meaning and len(columns) == 1:
        columns_by_meaning[name] = columns[0]


def _choose_pair(
    columns_by_meaning: dict[str, str], wanted_meanings: Sequence[str], values: Values
) -> None:
    """Choose the two texts of a pair, if only one pair of columns can be it."""
    columns = {plain_header(column): column for column in values}
    pairs = [
        (columns[first], columns[second])
        for first, second in PAIRS
        if first in columns and second in columns
    ]
    if "pair" in wanted_meanings and len(pairs) == 1:
        columns_by_meaning["text"], columns_by_meaning["pair"] = pairs[0]


def _columns_named(values: Values, name: str, columns_by_meaning: Mapping[str, str]) -> list[str]:
    """The columns that are named so, have such values and are not chosen."""
    return [
        column
        for column, of_column in values.items()
        if column not in columns_by_meaning.values()
        and _is_named(column, name)
        and _fits(column, name, of_column)
    ]


def _is_named(column: str, name: str) -> bool:
    return re.fullmatch(NAMES[name], plain_header(column)) is not None


def _fits(column: str, name: str, values: Sequence[object]) -> bool:
    """Whether the values of a column of this name are such; a name that says enough needs none."""
    if name == "text" and not re.fullmatch(WEAK_TEXTS, plain_header(column)):
        return True
    return VALUES_FIT.get(name, _fits_any_values)(values)


def _label_columns(
    values: Values, columns_by_meaning: Mapping[str, str], classes: Sequence[str]
) -> list[str]:
    """The columns of labels.

    Those that hold the classes' names, else those named so, else those with the classes' numbers.
    """
    free: dict[str, Sequence[object]] = {}
    columns_of_names: list[str] = []
    columns_of_numbers: list[str] = []
    for column, of_column in values.items():
        if column in columns_by_meaning.values():
            continue
        free[column] = of_column
        if _are_classes(of_column, classes):
            columns_of_names.append(column)
        if _are_numbers(of_column, len(classes)):
            columns_of_numbers.append(column)
    columns_named_label = _columns_named(free, "label", {})
    if len(columns_of_names) > 1:
        return [column for column in columns_of_names if column in columns_named_label]
    if columns_of_names:
        return columns_of_names
    if len(columns_named_label) > 1:
        return [column for column in columns_named_label if column in columns_of_numbers]
    return columns_named_label or columns_of_numbers


def _columns_of_codes(values: Values, columns_by_meaning: Mapping[str, str]) -> list[str]:
    """The columns that hold language codes and nothing else."""
    return [
        column
        for column, of_column in values.items()
        if column not in columns_by_meaning.values() and _are_codes(of_column)
    ]


# What the values of a column can be.


def _fits_any_values(_values: Sequence[object]) -> bool:
    return True


def _texts(values: Sequence[object]) -> list[str]:
    """The values that are there, as texts without surrounding spaces."""
    return [
        str(value).strip() for value in values if value is not None and not isinstance(value, list)
    ]


def _are_labels(values: Sequence[object]) -> bool:
    """Whether the values repeat as labels do, and none is a number with a fraction."""
    texts = _texts(values)
    different = set(texts)
    repeat = len(texts) <= FEW_ROWS or 2 * len(different) <= len(texts)
    return (
        bool(different)
        and repeat
        and len(different) <= MAX_LABELS
        and not any(map(_is_fraction, different))
    )


def _is_fraction(text: str) -> bool:
    return re.fullmatch(r"[-+]?\d*[.,]\d+(e[-+]?\d+)?", text, re.IGNORECASE) is not None


def _are_free_texts(values: Sequence[object]) -> bool:
    """Whether the values differ as texts do, not as the names of a few sources."""
    texts = _texts(values)
    return len(texts) <= FEW_ROWS or 5 * len(set(texts)) > len(texts)


def _are_classes(values: Sequence[object], classes: Sequence[str]) -> bool:
    """Whether every value is the name of one of a model's classes, in any case.

    At least two of the names must be there.
    """
    names = {meaning(plain_name(name)) for name in classes}
    different = {meaning(plain_name(text)) for text in _texts(values)}
    return not are_nameless(classes) and len(different) > 1 and different <= names


def _are_numbers(values: Sequence[object], classes: int) -> bool:
    """Whether every value is the number of one of so many classes.

    At least two of the numbers must be there.
    """
    different = set(_texts(values))
    return len(different) > 1 and all(
        text.isascii() and text.isdigit() and int(text) < classes for text in different
    )


def _could_be_codes(values: Sequence[object]) -> bool:
    """Whether every value is written as a language code."""
    texts = _texts(values)
    return bool(texts) and all(CODE.fullmatch(text) for text in texts)


def _are_codes(values: Sequence[object]) -> bool:
    """Whether every value is the code of a language.

    Some must be no words of a language besides.
    """
    codes = {text.lower() for text in _texts(values)}
    if not codes or not all(
        CODE.fullmatch(code) and re.split("[-_]", code)[0] in CODES for code in codes
    ):
        return False
    return not codes <= ANSWERS


def _are_lists_of_choices(values: Sequence[object]) -> bool:
    return all(
        isinstance(value, list) or "|" in str(value) or str(value).lstrip().startswith("[")
        for value in values
    )


VALUES_FIT: Mapping[str, Callable[[Sequence[object]], bool]] = {
    "language": _could_be_codes,
    "label": _are_labels,
    "text": _are_free_texts,
    "target": _are_free_texts,
    "choices": _are_lists_of_choices,
    "split": _are_labels,
}


def label_each_word(values: Values) -> bool:
    """Whether a column of words and one of their labels are there.

    Every row has as many words as labels.
    """
    columns = guess_columns(values, ("words", "labels"))
    if len(columns) < 2:
        return False
    rows = zip(values[columns["words"]], values[columns["labels"]], strict=False)
    return all(_count(words) == _count(labels) for words, labels in rows)


def _count(value: object) -> int:
    if isinstance(value, list):
        return len(value)
    return len(str(value).split())


# The labels of a file beside the classes of a model.


def labels_beside_classes(
    counts: Mapping[str, int], classes: Sequence[str], model: str
) -> tuple[bool, str]:
    """Whether a model's classes have the names of a file's labels, and a sentence.

    Args:
        counts: Rows, or words, by label.
        classes: The model's own names of its classes.
        model: Its name.

    Returns:
        Whether they have; and a sentence, which says what to do where they have not.
    """
    names = {meaning(plain_name(name)) for name in classes}
    unknown_labels = [label for label in counts if meaning(plain_name(label)) not in names]
    if not unknown_labels:
        return True, f"Each label is the name of a class of {model}."
    class_names = ", ".join(classes[:6])
    if len(classes) > 6:
        class_names += "…"
    if all(label.isascii() and label.isdigit() and int(label) < len(classes) for label in counts):
        numbers = {label: class_text(classes, int(label)) for label in sorted(counts, key=int)}
        typed_map = f"--label-map {shlex.quote(write_label_map(numbers))} into the command"
        if not any(name.isdigit() for name in numbers.values()):  # the sidebar takes names alone
            typed_map = f"{write_label_map(numbers)} into Label map in the sidebar, or {typed_map}"
        return False, (
            f"The labels are numbers. If they are the numbers of the classes of {model}, type "
            f"{typed_map}."
        )
    if are_nameless(classes):
        return False, (
            f"The classes of {model} are called {class_names}, which says nothing. Up to six are "
            "matched on examples; of more, say which label each is (Label map in the sidebar, or "
            "--label-map)."
        )
    rows = sum(counts[label] for label in unknown_labels)
    unknown_names = ", ".join(f"{label:.40}" for label in unknown_labels[:5])
    if len(unknown_labels) > 5:
        unknown_names += "…"
    if len(unknown_labels) == len(counts):
        finding = f"None of the {len(counts)} labels is a class of {model}"
    elif len(unknown_labels) > 1:
        finding = (
            f"{len(unknown_labels)} of the {len(counts)} labels are not classes of {model} "
            f"({rows:,} times)"
        )
    else:
        finding = f"1 of the {len(counts)} labels is not a class of {model} ({rows:,} times)"
    advice = "Correct the file, choose the model that was trained on these labels"
    if len(counts) <= len(classes):
        advice += (
            f", or say which of {class_names} each label is (Label map in the sidebar, or "
            "--label-map)"
        )
    return False, f"{finding}: {unknown_names}. {advice}."
