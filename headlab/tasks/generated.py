"""Tasks for language models made of our own words.

It is known beforehand what the important heads do.

`repeats`: random words said twice, for induction and previous-token heads.  `ioi`: indirect object
identification, for heads that find the name said once.  `agreement`: the number of the verb, for
heads that find the subject past other nouns.  `needle`: a fact said early and asked for late, for
heads that read far back.  The splits of a task are drawn together and share no
text; templates, nouns and words stand in all of them, so a mask chosen on dev may rely on a
template that test has too.  A split is in random order, so that any prefix is a random subset of
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headlab.core import require_seed
from headlab.tasks.base import DEV_SIZE, Example, Split, Task
from headlab.tasks.needle import (
    NEEDLE,
    TEXTS,
    USUAL_WORDS,
    draw_needle,
    is_needle,
    name_with,
    words_of,
)

SIZES: Mapping[Split, int] = MappingProxyType({"train": 512, "dev": DEV_SIZE, "test": 1000})
ENGLISH = ("en",)
REPEATED_WORDS = 28  # words in each half of an example of `repeats`


def repeats_task(data: Path | None = None, seed: int = 0) -> Task:
    """Random words said twice.

    Every word of `target` stands in `text`, after the word it follows again.

    Args:
        data: Not used. Each example is its own group.
    """
    return Task("repeats", (), ENGLISH, False, partial(_read, "repeats"), seed, likelihood="tokens")


def ioi_task(data: Path | None = None, seed: int = 0) -> Task:
    """Indirect object identification: two names, one of them said again.

    The right choice is the other.

    Args:
        data: Not used. A group is a template in one order: ABBA (the name said again stands second)
            or BABA (first).
    """
    return Task("ioi", (), ENGLISH, False, partial(_read, "ioi"), seed, likelihood="choices")


def agreement_task(data: Path | None = None, seed: int = 0) -> Task:
    """Agreement of verb and subject in number, with 0, 1 or 2 other nouns between them.

    The choices are verbs.

    Args:
        data: Not used. Numbers of subject and other nouns are balanced. A group is a subject in one
            construction. Rows are not aligned across languages.
    """
    return Task(
        "agreement",
        (),
        tuple(GRAMMARS),
        False,
        partial(_read, "agreement"),
        seed,
        likelihood="choices",
    )


def needle_task(data: Path | None = None, seed: int = 0, words: int = USUAL_WORDS) -> Task:
    """A fact early in the text, asked for late: two persons in two cities, and where one of them is.

    The choices are both cities.

    Args:
        data: Not used. A group is a person in one kind of fact. Rows are not aligned across
            languages.
        seed: Of the texts.
        words: Between facts and question, at least; other numbers are other tasks, needle:WORDS.
    """
    name = name_with(words_of(f"{NEEDLE}:{words}"))
    return Task(name, (), tuple(TEXTS), False, partial(_read, name), seed, likelihood="choices")


def _read(name: str, language: str, split: Split, seed: int) -> Sequence[Example]:
    return _splits(name, language, require_seed(seed))[split]


@lru_cache(maxsize=16)
def _splits(name: str, language: str, seed: int) -> Mapping[Split, tuple[Example, ...]]:
    """All splits of a task in a language.

    They are drawn together, so that no text stands twice in one split or in two.
    """
    dice = np.random.default_rng([seed, *f"{name}/{language}".encode()])
    id_stem = f"{name}-{language}" if name == "agreement" or is_needle(name) else name
    draw = _draw_of(name)
    drawn_texts: set[str] = set()
    examples_by_split: dict[Split, tuple[Example, ...]] = {}
    for split, size in SIZES.items():
        drawn_examples = [
            _draw_unseen(partial(draw, language, dice, row), drawn_texts) for row in range(size)
        ]
        examples = []
        for row, index in enumerate(dice.permutation(size)):
            example_id = f"{id_stem}-{split}-{row}"
            group = drawn_examples[index].group or example_id
            examples.append(replace(drawn_examples[index], id=example_id, group=group))
        examples_by_split[split] = tuple(examples)
    return examples_by_split


def _draw_unseen(draw: Callable[[], Example], drawn_texts: set[str]) -> Example:
    """The next example whose text is new.

    There are far more texts than are drawn, so there always is one.
    """
    example = draw()
    while example.text in drawn_texts:
        example = draw()
    drawn_texts.add(example.text)
    return example


# Each task draws an example without id. The binary digits of the row's number set what is to be
# balanced, all combinations alike; the rows are shuffled afterwards.


def _bit(row: int, digit: int) -> int:
    return row >> digit & 1


def _draw_item(dice: np.random.Generator, items: Sequence[str]) -> str:
    return items[int(dice.integers(len(items)))]


def _draw_items(dice: np.random.Generator, items: Sequence[str], count: int) -> list[str]:
    return [items[index] for index in dice.permutation(len(items))[:count]]


def _choice_example(
    text: str,
    right_choice: str,
    wrong_choice: str,
    label: int,
    group: str,
    counterfactuals: Iterable[str],
) -> Example:
    """An example of two choices, without an id.

    Args:
        text: Before the choices.
        right_choice: The one that continues the text.
        wrong_choice: The other one.
        label: Which of the two is right: 0 or 1.
        group: Of the example.
        counterfactuals: Texts after which the other choice is right.
    """
    choices = (f" {right_choice}", f" {wrong_choice}")
    if label:
        choices = choices[::-1]
    return Example(
        "", text, label, group=group, choices=choices, counterfactuals=tuple(counterfactuals)
    )


def _repeats(language: str, dice: np.random.Generator, row: int) -> Example:
    words = _draw_items(dice, _items_of(WORDS), REPEATED_WORDS)
    return Example(
        "",
        f"Words: {' '.join([*words, words[0]])}",
        target="".join(f" {word}" for word in words[1:]),
    )


def _ioi(language: str, dice: np.random.Generator, row: int) -> Example:
    template_number = int(dice.integers(len(TEMPLATES)))
    first_name, second_name = _draw_items(dice, [*_items_of(WOMEN), *_items_of(MEN)], 2)
    if _bit(row, 1):
        order = "ABBA"
        repeated_name = second_name
        single_name = first_name
    else:
        order = "BABA"
        repeated_name = first_name
        single_name = second_name
    place = _draw_item(dice, _items_of(PLACES))
    thing = _draw_item(dice, _items_of(THINGS, ","))
    template = partial(
        TEMPLATES[template_number].format,
        a=first_name,
        b=second_name,
        place=f"the {place}",
        thing=thing,
    )
    group = f"{template_number}-{order}"
    # The other name is said again.
    return _choice_example(
        template(s=repeated_name),
        single_name,
        repeated_name,
        _bit(row, 0),
        group,
        [template(s=single_name)],
    )


def _agreement(language: str, dice: np.random.Generator, row: int) -> Example:
    grammar = GRAMMARS[language]
    construction_number = int(dice.integers(len(CONSTRUCTIONS)))
    construction, kinds = CONSTRUCTIONS[construction_number]
    plurals = [_bit(row, digit) for digit in (1, 2, 3)][: len(kinds)]
    nouns = _nouns(language, kinds, dice)
    prepositions = _draw_items(dice, grammar.near, 2)
    words = {
        "there": _draw_item(dice, grammar.there),
        "mine": _draw_item(dice, grammar.mine),
        "near": prepositions[0],
        "by": prepositions[1],
    }
    seen_forms = _draw_item(dice, grammar.seen).split()
    helped_forms = _draw_item(dice, grammar.helped).split()
    verbs = _draw_item(dice, grammar.verbs).split()
    right_verb = verbs[plurals[0]]
    wrong_verb = verbs[1 - plurals[0]]

    def sentence(subject: Noun, numbers: Sequence[int]) -> str:
        """The sentence with a subject, and nouns in these numbers: 1 for the plural."""
        forms = dict(words)
        for letter, noun, is_plural in zip("sab", [subject, *nouns[1:]], numbers, strict=False):
            for form, noun_text in _forms(language, noun, is_plural).items():
                forms[f"{letter}_{form}"] = noun_text
            forms[f"{letter}_seen"] = seen_forms[is_plural]
            forms[f"{letter}_helped"] = helped_forms[is_plural]
        text = grammar.patterns[construction_number].format_map(forms)
        for uncontracted, contraction in grammar.contracted:
            text = re.sub(rf"\b{uncontracted}\b", contraction, text)
        return text[0].upper() + text[1:]

    group = f"{construction}-{nouns[0].singular}"
    # The subject is in the other number; another subject, where that takes another number of tokens.
    other_subjects = [noun for noun in _dictionary(language, kinds[0]) if noun not in nouns]
    if language == "en":
        other_subjects += LONGER_SUBJECTS
    contrasts = [
        sentence(subject, [1 - plurals[0], *plurals[1:]]) for subject in (nouns[0], *other_subjects)
    ]
    return _choice_example(
        sentence(nouns[0], plurals), right_verb, wrong_verb, _bit(row, 0), group, contrasts
    )


@lru_cache(maxsize=8)
def _items_of(text: str, separator: str | None = None) -> tuple[str, ...]:
    """The words of a compact table, or what stands between its commas."""
    return tuple(" ".join(item.split()) for item in text.split(separator))


# ioi: texts that end before a name. "{s}" is the name said again; each template is drawn in both
# orders.

TEMPLATES = (
    "While {a} and {b} were waiting near {place}, {s} handed {thing} to",
    "After {a} and {b} had met at {place}, {s} gave {thing} to",
    "Yesterday {a} and {b} walked to {place}, and {s} bought {thing} for",
    "{a} and {b} spent the whole morning at {place}. At noon {s} showed {thing} to",
    "As soon as {a} and {b} got to {place}, {s} offered {thing} to",
    "Last summer {a} and {b} worked together at {place}. One day {s} brought {thing} to",
    "On the way to {place}, {a} and {b} stopped for a moment, and {s} passed {thing} to",
    "Just before {a} and {b} left {place}, {s} promised {thing} to",
    "It was getting dark when {a} and {b} reached {place}. Without a word, {s} held out {thing} to",
    "Once {a} and {b} had finished their work at {place}, {s} sold {thing} to",
    "On the bus to {place}, {a} sat down beside {b}. Soon {s} handed {thing} over to",
    "{a} ran into {b} at {place} this morning, and {s} returned {thing} to",
    "Every Sunday {a} meets {b} at {place}. Last week {s} took along {thing} for",
    "There was hardly anybody at {place} when {a} and {b} arrived. Smiling, {s} presented "
    "{thing} to",
    "Although {a} and {b} had argued at {place}, {s} later sent {thing} to",
    "When {a} and {b} said goodbye near {place}, {s} quickly tossed {thing} to",
    "Two weeks after {a} and {b} had visited {place}, {s} mailed {thing} to",
    "{a} knew {b} from {place}, where they had often talked. Finally {s} dared to give {thing} to",
)
WOMEN = """
Mary Sarah Anna Emma Laura Lisa Julia Linda Karen Nancy Helen Alice Rachel Susan Maria Jane Kate
Amy Amanda Jessica Jennifer Emily Elizabeth Christine Michelle Claire Diana Ruth Victoria Lucy
Kelly Martha
"""
MEN = """
John James Robert Michael David William Richard Thomas Charles Daniel Matthew Paul Andrew George
Kevin Brian Peter Frank Henry Adam Simon Jack Ryan Eric Stephen Scott Jason Tom Ben Sam Luke
Patrick
"""
PLACES = """
store park library station beach market museum school office garden bakery cafe gym zoo cinema
hospital harbor farm hotel lake bank airport castle church theater stadium pool bridge pharmacy
restaurant
"""
THINGS = """
a drink, a book, a letter, a ticket, a sandwich, an apple, a pen, a ring, a map, a photo,
a coin, a hat, a scarf, a basket, a bottle of water, a key, a flower, a cookie,
an umbrella, a blanket, a camera, a toy, a postcard, a gift, a candle, an orange,
a notebook, a newspaper, a small box, a pair of gloves
"""

# repeats: common English words, in most tokenizers one token each after a space.

WORDS = """
able actor age air angle apple arm art baby back bad bag ball band bank bar base bath battle
beach bear beat beauty bed beer bell best big bike bill birth bit black blind block blood blue
board boat body bone book boot border boss bottle bottom bowl box boy brain bread break brief
bright broad broken brown brush bus busy butter button cake call calm camera camp cap car card
care cash cat cell center chain chair chance change cheap cheese chief child church city class
clean clear close cloud club coach coast code coffee coin cold color cook cool copy corn corner
cost cotton court cousin cover cream crew cross crowd cry cup dance danger dark date day deal
debt deep dinner doctor dog door double doubt dream dress drink drive driver drop drum dry ear
early earth easy edge egg empty end energy engine enough error event exit eye face fact fair
family famous fan far farm fast father fear field film final finger fire fish flag flat floor
food foot force form frame free fresh friend front fruit full fun game garage garden gas gate
gift girl glad glass gold good grain grand great green ground group guest guide guitar hair half
hall hand happy hard hat head health heart heat heavy height help hero high hill hole home honey
hope horse hot hotel hour house human idea island job joke joy juice jump jury key king lady
lake lamp land large late laugh law lawyer lead leg lemon letter level light limit line lip list
little lock long lost love low lucky lunch magic mail major map market master match meal medal
metal middle milk mind minute mirror mobile model moment money month mother motor mouth movie
mud museum music nail name nation nature near net news nice night north note number nurse ocean
office oil old open order oven owner page pain paint pair pan paper parent park part party path
peace pen people pepper phone photo piano piece pig pilot pink pipe place plan plane plant plate
player pocket poem poet point pool poor power price prince print proud public pull pure quick
quiet race radio rain rare raw ready record red rest rice rich ride right ring river road robot
rock roof room root rose rough round royal sad safe salt sand school sea season second secret
serve shape sharp sheet ship shop short silver simple sister size skill skin sky sleep slow
small smart smile smooth snow soft son song soup south space speed sport spring stage stamp star
steel stick store storm story street strong sugar summer sun sweet swim table tall tank task
taste tea temple tennis test thing ticket tight time tired title tool top town toy track trade
train tree trip truck trust truth tube twin union usual video view visit voice walk wall warm
water week west wet wheel white whole wide wife wild wind window wine winter woman wood word
work world worm yellow young zero
"""

# agreement: nouns of a language are persons, things or places, each with article, singular and
# plural. Forms of a noun in a pattern: _is (as subject or object of a relative clause), _to (after
# a preposition, or with a verb that takes the dative), _who and _whom (the relative pronoun as
# subject, as object), _seen and _helped (verbs of which it is the subject).

PERSON = "persons"
THING = "things"
PLACE = "places"
ANY_KIND = (PERSON, THING, PLACE)
# Kinds of subject and other nouns, in the order of a grammar's patterns.
CONSTRUCTIONS = (
    ("adverb", (ANY_KIND,)),
    ("pronoun-clause", (ANY_KIND,)),
    ("phrase", (ANY_KIND, (PERSON, PLACE))),
    ("object-clause", ((THING, PLACE), (PERSON,))),
    ("subject-clause", ((PERSON,), (PERSON,))),
    ("two-phrases", (ANY_KIND, (PLACE,), (PERSON, PLACE))),
    ("phrase-clause", (ANY_KIND, (PLACE,), (PERSON,))),
    ("object-clause-phrase", ((THING,), (PERSON,), (PLACE,))),
    ("subject-clause-phrase", ((PERSON,), (PERSON,), (PLACE,))),
)


class Noun(NamedTuple):
    """A noun with the article of its singular and whether it is a person."""

    article: str
    singular: str
    plural: str
    person: bool


# Subjects of counterfactuals alone, of two tokens where most nouns have one.
LONGER_SUBJECTS = tuple(
    Noun("the", singular, plural, person=True)
    for singular, plural in (
        ("goldsmith", "goldsmiths"),
        ("milkman", "milkmen"),
        ("shopkeeper", "shopkeepers"),
        ("bookkeeper", "bookkeepers"),
    )
)


class Grammar(NamedTuple):
    """What sentences of a language are made of.

    Attributes:
        persons, things, places: "article singular plural" by commas.
        patterns: One per construction.
        near: Prepositions.
        there: Adverbs that follow a noun.
        mine: Clauses without their relative pronoun.
        seen: "singular plural" of verbs whose object is a thing or place.
        helped: A person.
        contracted: (words, what they become).
        verbs: The choices.
    """

    persons: str
    things: str
    places: str
    patterns: tuple[str, ...]
    near: tuple[str, ...]
    there: tuple[str, ...]
    mine: tuple[str, ...]
    seen: tuple[str, ...]
    helped: tuple[str, ...]
    contracted: tuple[tuple[str, str], ...]
    verbs: tuple[str, ...]


def _nouns(
    language: str, kinds: Sequence[tuple[str, ...]], dice: np.random.Generator
) -> list[Noun]:
    """Different nouns, one of each kind."""
    nouns: list[Noun] = []
    for kind in kinds:
        unused_nouns = [noun for noun in _dictionary(language, kind) if noun not in nouns]
        nouns.append(unused_nouns[int(dice.integers(len(unused_nouns)))])
    return nouns


@lru_cache(maxsize=32)
def _dictionary(language: str, kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    nouns = []
    for kind in kinds:
        for entry in _items_of(getattr(GRAMMARS[language], kind), ","):
            article, singular, plural = entry.replace("l'", "l' ").split()
            nouns.append(Noun(article, singular, plural, kind == PERSON))
    return tuple(nouns)


def _forms(language: str, noun: Noun, plural: int) -> dict[str, str]:
    """A noun with its article, and its relative pronouns, in the cases that patterns use."""
    if language == "de":
        return _german_forms(noun, plural)
    word = noun.plural if plural else noun.singular
    plural_articles = {"la": "las", "el": "los"} if language == "es" else {"the": "the"}
    article = plural_articles.get(noun.article, "les") if plural else noun.article
    noun_phrase = f"{article}{word}" if article == "l'" else f"{article} {word}"
    object_pronoun = f"a {article} que" if language == "es" and noun.person else "que"
    return {"is": noun_phrase, "to": noun_phrase, "whom": object_pronoun}


GERMAN_DATIVES = {"der": "dem", "das": "dem", "die": "der"}
GERMAN_ACCUSATIVES = {"der": "den", "das": "das", "die": "die"}


def _german_forms(noun: Noun, plural: int) -> dict[str, str]:
    """The forms of a German noun, which declines with its article."""
    if not plural:
        dative = f"{GERMAN_DATIVES[noun.article]} {noun.singular}"
        return {
            "is": f"{noun.article} {noun.singular}",
            "to": dative,
            "who": noun.article,
            "whom": GERMAN_ACCUSATIVES[noun.article],
        }
    dative = f"den {noun.plural}"
    if noun.plural[-1] not in "ns":
        dative += "n"
    return {"is": f"die {noun.plural}", "to": dative, "who": "die", "whom": "die"}


GRAMMARS: Mapping[str, Grammar] = MappingProxyType(
    {
        "en": Grammar(
            persons="""
            the doctor doctors, the teacher teachers, the lawyer lawyers, the farmer farmers,
            the singer singers, the driver drivers, the nurse nurses, the student students,
            the neighbor neighbors, the guest guests, the painter painters,
            the writer writers, the baker bakers, the child children, the woman women,
            the man men
            """,
            things="""
            the key keys, the book books, the letter letters, the picture pictures,
            the bottle bottles, the ticket tickets, the lamp lamps, the bag bags,
            the cup cups, the box boxes, the phone phones, the coat coats, the hat hats,
            the ring rings, the map maps, the knife knives, the toy toys, the camera cameras
            """,
            places="""
            the cabinet cabinets, the table tables, the car cars, the tree trees,
            the house houses, the window windows, the door doors, the bridge bridges,
            the tower towers, the garden gardens, the church churches, the shop shops,
            the hotel hotels, the boat boats
            """,
            patterns=(
                "{s_is} {there}",
                "{s_is} that {mine}",
                "{s_is} {near} {a_to}",
                "{s_is} that {a_is} {a_seen}",
                "{s_is} who {s_helped} {a_to}",
                "{s_is} {near} {a_to} {by} {b_to}",
                "{s_is} {near} {a_to} that {b_is} {b_seen}",
                "{s_is} that {a_is} {a_seen} {near} {b_to}",
                "{s_is} who {s_helped} {a_to} {near} {b_to}",
            ),
            near=("near", "behind", "beside", "next to", "in front of"),
            there=(
                "over there",
                "from yesterday",
                "right here",
                "from before",
                "up there",
                "down there",
            ),
            mine=(
                "I saw yesterday",
                "I told you about",
                "you described",
                "we saw there",
                "you liked so much",
            ),
            seen=(
                "saw saw",
                "noticed noticed",
                "painted painted",
                "found found",
                "photographed photographed",
            ),
            helped=(
                "helped helped",
                "met met",
                "visited visited",
                "thanked thanked",
                "admired admired",
            ),
            contracted=(),
            verbs=("is are", "was were", "has have"),
        ),
        "de": Grammar(
            persons="""
            der Arzt Ärzte, die Lehrerin Lehrerinnen, der Anwalt Anwälte,
            die Bäuerin Bäuerinnen, der Sänger Sänger, die Fahrerin Fahrerinnen,
            der Gast Gäste, die Nachbarin Nachbarinnen, der Maler Maler,
            die Autorin Autorinnen, der Bäcker Bäcker, das Kind Kinder, die Frau Frauen,
            der Mann Männer, die Schülerin Schülerinnen, der Freund Freunde
            """,
            things="""
            der Schlüssel Schlüssel, das Buch Bücher, der Brief Briefe, das Bild Bilder,
            die Flasche Flaschen, die Karte Karten, die Lampe Lampen, die Tasche Taschen,
            der Teller Teller, die Kiste Kisten, das Handy Handys, der Mantel Mäntel,
            der Hut Hüte, der Ring Ringe, das Messer Messer, die Kamera Kameras,
            der Ball Bälle, die Uhr Uhren
            """,
            places="""
            der Schrank Schränke, der Tisch Tische, das Auto Autos, der Baum Bäume,
            das Haus Häuser, das Fenster Fenster, die Tür Türen, die Brücke Brücken,
            der Turm Türme, der Garten Gärten, die Kirche Kirchen, der Laden Läden,
            das Hotel Hotels, das Boot Boote
            """,
            patterns=(
                "{s_is} {there}",
                "{s_is}, {s_whom} {mine},",
                "{s_is} {near} {a_to}",
                "{s_is}, {s_whom} {a_is} {a_seen},",
                "{s_is}, {s_who} {a_to} {s_helped},",
                "{s_is} {near} {a_to} {by} {b_to}",
                "{s_is} {near} {a_to}, {a_whom} {b_is} {b_seen},",
                "{s_is}, {s_whom} {a_is} {near} {b_to} {a_seen},",
                "{s_is}, {s_who} {a_to} {near} {b_to} {s_helped},",
            ),
            near=("neben", "hinter", "vor", "bei"),
            there=(
                "dort drüben",
                "von gestern",
                "hier vorne",
                "von vorhin",
                "da oben",
                "da hinten",
            ),
            mine=("ich gestern gesehen habe", "du meinst", "wir suchen", "ihr kennt", "ich so mag"),
            seen=(
                "sah sahen",
                "malte malten",
                "fotografierte fotografierten",
                "entdeckte entdeckten",
                "suchte suchten",
            ),
            helped=(
                "half halfen",
                "dankte dankten",
                "winkte winkten",
                "folgte folgten",
                "begegnete begegneten",
            ),
            contracted=(("bei dem", "beim"),),
            verbs=("ist sind", "war waren", "hat haben"),
        ),
        "fr": Grammar(
            persons="""
            le médecin médecins, l'avocat avocats, la chanteuse chanteuses,
            le chauffeur chauffeurs, l'infirmière infirmières, l'étudiant étudiants,
            la voisine voisines, l'invité invités, le peintre peintres, l'écrivain écrivains,
            la boulangère boulangères, l'enfant enfants, la femme femmes, l'homme hommes,
            le paysan paysans, la vendeuse vendeuses
            """,
            things="""
            la clé clés, le livre livres, la lettre lettres, le tableau tableaux,
            la bouteille bouteilles, le billet billets, la lampe lampes, la valise valises,
            la tasse tasses, la boîte boîtes, le téléphone téléphones, le manteau manteaux,
            le chapeau chapeaux, la bague bagues, la carte cartes, le couteau couteaux,
            le jouet jouets, la photo photos
            """,
            places="""
            l'armoire armoires, la table tables, la voiture voitures, l'arbre arbres,
            la maison maisons, la fenêtre fenêtres, la porte portes, le pont ponts,
            la tour tours, le jardin jardins, l'église églises, la boutique boutiques,
            l'hôtel hôtels, le bateau bateaux
            """,
            patterns=(
                "{s_is} {there}",
                "{s_is} que {mine}",
                "{s_is} {near} {a_to}",
                "{s_is} que {a_is} {a_seen}",
                "{s_is} qui {s_helped} {a_to}",
                "{s_is} {near} {a_to} {by} {b_to}",
                "{s_is} {near} {a_to} que {b_is} {b_seen}",
                "{s_is} que {a_is} {a_seen} {near} {b_to}",
                "{s_is} qui {s_helped} {a_to} {near} {b_to}",
            ),
            near=("près de", "derrière", "devant", "à côté de", "en face de"),
            there=("là-bas", "d'hier", "d'en face", "d'à côté", "là-haut", "d'en bas"),
            mine=(
                "je connais bien",
                "tu cherches",
                "nous aimons tant",
                "vous voyez ici",
                "j'admire",
            ),
            seen=(
                "cherchait cherchaient",
                "admirait admiraient",
                "photographiait photographiaient",
                "dessinait dessinaient",
                "regardait regardaient",
            ),
            helped=(
                "aidait aidaient",
                "écoutait écoutaient",
                "attendait attendaient",
                "cherchait cherchaient",
                "suivait suivaient",
            ),
            contracted=(("de le", "du"), ("de les", "des")),
            verbs=("est sont", "était étaient", "a ont"),
        ),
        "es": Grammar(
            persons="""
            el médico médicos, la profesora profesoras, el abogado abogados,
            la cantante cantantes, el conductor conductores, la enfermera enfermeras,
            el estudiante estudiantes, la vecina vecinas, el invitado invitados,
            el pintor pintores, la escritora escritoras, el panadero panaderos, el niño niños,
            la mujer mujeres, el hombre hombres, la amiga amigas
            """,
            things="""
            la llave llaves, el libro libros, la carta cartas, el cuadro cuadros,
            la botella botellas, el billete billetes, la lámpara lámparas, la maleta maletas,
            la taza tazas, la caja cajas, el teléfono teléfonos, el abrigo abrigos,
            el sombrero sombreros, el anillo anillos, el mapa mapas, el cuchillo cuchillos,
            el juguete juguetes, la foto fotos
            """,
            places="""
            el armario armarios, la mesa mesas, el coche coches, el árbol árboles,
            la casa casas, la ventana ventanas, la puerta puertas, el puente puentes,
            la torre torres, el jardín jardines, la iglesia iglesias, la tienda tiendas,
            el hotel hoteles, el barco barcos
            """,
            patterns=(
                "{s_is} {there}",
                "{s_is} {s_whom} {mine}",
                "{s_is} {near} {a_to}",
                "{s_is} que {a_is} {a_seen}",
                "{s_is} que {s_helped} a {a_to}",
                "{s_is} {near} {a_to} {by} {b_to}",
                "{s_is} {near} {a_to} que {b_is} {b_seen}",
                "{s_is} que {a_is} {a_seen} {near} {b_to}",
                "{s_is} que {s_helped} a {a_to} {near} {b_to}",
            ),
            near=("cerca de", "detrás de", "delante de", "junto a", "al lado de", "frente a"),
            there=("de allí", "de ayer", "de aquí", "de arriba", "de enfrente", "de al lado"),
            mine=("conozco bien", "buscas", "vemos aquí", "tanto admiro", "usted prefiere"),
            seen=(
                "miraba miraban",
                "pintaba pintaban",
                "fotografiaba fotografiaban",
                "buscaba buscaban",
                "admiraba admiraban",
            ),
            helped=(
                "ayudaba ayudaban",
                "saludaba saludaban",
                "esperaba esperaban",
                "escuchaba escuchaban",
                "buscaba buscaban",
            ),
            contracted=(("de el", "del"), ("a el", "al")),
            verbs=("es son", "era eran", "ha han", "está están"),
        ),
    }
)

Draw = Callable[[str, np.random.Generator, int], Example]
DRAWS: Mapping[str, Draw] = MappingProxyType(
    {"repeats": _repeats, "ioi": _ioi, "agreement": _agreement}
)


def _draw_of(name: str) -> Draw:
    """What draws the examples of a task."""
    if is_needle(name):
        return partial(draw_needle, words=words_of(name))
    return DRAWS[name]
