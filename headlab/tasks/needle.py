"""What the examples of task `needle` are made of: two facts, much that is beside the point, a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from headlab.core import HeadlabError
from headlab.tasks.base import Example

NEEDLE = "needle"
USUAL_WORDS = 120
"""Words between facts and question, at least: in most tokenizers 150 to 200 tokens."""
MOST_WORDS = 50_000


class NeedleTexts(NamedTuple):
    """What texts of a language are made of.

    Attributes:
        opening: The first sentence, so that no fact is among the very first tokens.
        facts: A person and a city; "{a}" and "{b}".
        reminder: What stands before a fact that is asked for.
        cities: The cities, by commas.
        between: Sentences that stand between facts and question.
    """

    opening: str
    facts: tuple[str, ...]
    reminder: str
    cities: str
    between: tuple[str, ...]


def words_of(name: str) -> int:
    """How many words stand between facts and question in a task.

    Args:
        name: Of the task: needle, or needle:WORDS.

    Raises:
        HeadlabError: It is no such number.
    """
    _, colon, text = name.partition(":")
    if not colon:
        return USUAL_WORDS
    if text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_WORDS:
        return int(text)
    raise HeadlabError(
        f"task {name!r:.60} does not say how many words stand between facts and question; write {NEEDLE}:400, say, "
        f"with a whole number from 1 to {MOST_WORDS:,}, or {NEEDLE} for {USUAL_WORDS}",
        code="task.needle_words",
    )


def name_with(words: int) -> str:
    """The name of the task with so many words between facts and question."""
    return NEEDLE if words == USUAL_WORDS else f"{NEEDLE}:{words}"


def is_needle(name: str) -> bool:
    """Whether a task is `needle`, of any length."""
    return name.partition(":")[0] == NEEDLE


def draw_needle(language: str, dice: np.random.Generator, row: int, *, words: int) -> Example:
    """An example without an id: who lives where, said early, asked for late.

    The choices are the cities of both facts, so that it is no help to know which cities are named.
    The binary digits of the row's number say which choice is right and which fact is asked for.

    Args:
        language: One of `TEXTS`.
        dice: What draws.
        row: Its number.
        words: Between facts and question, at least.
    """
    texts = TEXTS[language]
    number = int(dice.integers(len(texts.facts)))
    fact = texts.facts[number]
    names = [NAMES[index] for index in dice.permutation(len(NAMES))[:2]]
    known_cities = [city.strip() for city in texts.cities.split(",")]
    cities = [known_cities[index] for index in dice.permutation(len(known_cities))[:2]]
    between = list(_between(texts, dice, words))
    asked = row >> 1 & 1

    def text_with(first_city: str, second_city: str) -> str:
        """The text, in which the two persons are in these cities."""
        facts = [
            f"{fact.format(a=name, b=city)}."
            for name, city in zip(names, (first_city, second_city), strict=True)
        ]
        question = fact.format(a=names[asked], b="").rstrip()
        return " ".join([texts.opening, *facts, *between, f"{texts.reminder} {question}"])

    choices = (f" {cities[asked]}", f" {cities[1 - asked]}")
    label = row & 1
    return Example(
        "",
        text_with(*cities),
        label,
        group=f"{number}-{names[asked]}",
        choices=choices[::-1] if label else choices,
        counterfactuals=(text_with(*reversed(cities)),),
    )


def _between(texts: NeedleTexts, dice: np.random.Generator, words: int) -> Iterator[str]:
    """Sentences of so many words at least; all are said before one is said again."""
    count = 0
    while True:
        for index in dice.permutation(len(texts.between)):
            if count >= words:
                return
            sentence = texts.between[index]
            count += len(sentence.split())
            yield sentence


NAMES = (
    "Anna",
    "Julia",
    "Maria",
    "Laura",
    "Lisa",
    "Sarah",
    "Emma",
    "Clara",
    "Nina",
    "Eva",
    "Helena",
    "Paul",
    "David",
    "Martin",
    "Daniel",
    "Thomas",
    "Peter",
    "Robert",
    "Victor",
    "Oscar",
    "Max",
    "Leo",
    "Simon",
    "Hugo",
)
"""Names that all these languages have."""
TEXTS: Mapping[str, NeedleTexts] = MappingProxyType(
    {
        "en": NeedleTexts(
            opening="This is a long note about several people and many other things.",
            facts=("{a} lives in {b}", "{a} works in {b}", "{a} went to school in {b}"),
            reminder="As was said at the beginning,",
            cities=(
                "London, Paris, Berlin, Madrid, Rome, Vienna, Dublin, Oslo, Athens, Prague, Boston, Chicago, Toronto, "
                "Sydney, Tokyo, Moscow, Munich, Milan, Barcelona, Amsterdam"
            ),
            between=(
                "The weather was mild for most of the week.",
                "Nobody had expected the bakery to close so early.",
                "A small dog was sleeping under the old table.",
                "The train was late again because of the snow.",
                "Most of the apples had already been picked.",
                "Somebody had left the window open all night.",
                "The new bridge will be finished next year.",
                "There was hardly any traffic on the main road.",
                "The soup needs a little more salt and pepper.",
                "Two of the chairs in the hall were broken.",
                "The library lends books for four weeks at most.",
                "In the evening it began to rain heavily.",
                "The price of coffee has gone up once more.",
                "A blue car was parked in front of the house.",
                "The concert had to be moved to a larger room.",
                "He could not remember where he had put the keys.",
                "The garden is full of roses in the summer.",
                "They painted the kitchen walls a light shade of green.",
                "The letter arrived three days after the party.",
                "Her brother plays the piano better than anybody else.",
                "The lake freezes over in very cold winters.",
                "Every morning the same man walks past the station.",
                "The film was much longer than the book.",
                "It took them an hour to find a hotel.",
            ),
        ),
        "de": NeedleTexts(
            opening="Dies ist eine lange Notiz über mehrere Leute und vieles andere.",
            facts=("{a} wohnt in {b}", "{a} arbeitet in {b}", "{a} studiert in {b}"),
            reminder="Wie am Anfang gesagt wurde:",
            cities=(
                "London, Paris, Berlin, Madrid, Rom, Wien, Dublin, Oslo, Athen, Prag, Boston, Chicago, Toronto, "
                "Sydney, Tokio, Moskau, München, Mailand, Barcelona, Amsterdam"
            ),
            between=(
                "Das Wetter war fast die ganze Woche mild.",
                "Niemand hatte erwartet, dass die Bäckerei so früh schließt.",
                "Ein kleiner Hund schlief unter dem alten Tisch.",
                "Der Zug hatte wegen des Schnees wieder Verspätung.",
                "Die meisten Äpfel waren schon gepflückt.",
                "Jemand hatte das Fenster die ganze Nacht offen gelassen.",
                "Die neue Brücke wird nächstes Jahr fertig.",
                "Auf der Hauptstraße war kaum Verkehr.",
                "Die Suppe braucht noch etwas Salz und Pfeffer.",
                "Zwei der Stühle im Saal waren kaputt.",
                "Die Bibliothek verleiht Bücher für höchstens vier Wochen.",
                "Am Abend begann es stark zu regnen.",
                "Der Preis für Kaffee ist noch einmal gestiegen.",
                "Vor dem Haus stand ein blaues Auto.",
                "Das Konzert musste in einen größeren Raum verlegt werden.",
                "Er wusste nicht mehr, wohin er die Schlüssel gelegt hatte.",
                "Im Sommer ist der Garten voller Rosen.",
                "Sie strichen die Wände der Küche hellgrün.",
                "Der Brief kam drei Tage nach dem Fest an.",
                "Ihr Bruder spielt besser Klavier als alle anderen.",
                "In sehr kalten Wintern friert der See zu.",
                "Jeden Morgen geht derselbe Mann am Bahnhof vorbei.",
                "Der Film war viel länger als das Buch.",
                "Sie brauchten eine Stunde, um ein Hotel zu finden.",
            ),
        ),
        "fr": NeedleTexts(
            opening="Ceci est une longue note sur plusieurs personnes et bien d'autres choses.",
            facts=("{a} habite à {b}", "{a} travaille à {b}", "{a} étudie à {b}"),
            reminder="Comme on l'a dit au début,",
            cities=(
                "Londres, Paris, Berlin, Madrid, Rome, Vienne, Dublin, Oslo, Athènes, Prague, Boston, Chicago, "
                "Toronto, Sydney, Tokyo, Moscou, Munich, Milan, Barcelone, Amsterdam"
            ),
            between=(
                "Le temps a été doux presque toute la semaine.",
                "Personne ne pensait que la boulangerie fermerait si tôt.",
                "Un petit chien dormait sous la vieille table.",
                "Le train était encore en retard à cause de la neige.",
                "La plupart des pommes avaient déjà été cueillies.",
                "Quelqu'un avait laissé la fenêtre ouverte toute la nuit.",
                "Le nouveau pont sera terminé l'année prochaine.",
                "Il n'y avait presque pas de voitures sur la route.",
                "La soupe a besoin d'un peu de sel et de poivre.",
                "Deux des chaises de la salle étaient cassées.",
                "La bibliothèque prête les livres pour quatre semaines au plus.",
                "Le soir, il a commencé à pleuvoir très fort.",
                "Le prix du café a encore augmenté.",
                "Une voiture bleue était garée devant la maison.",
                "Il a fallu donner le concert dans une salle plus grande.",
                "Il ne savait plus où il avait mis les clés.",
                "En été, le jardin est plein de roses.",
                "Ils ont peint les murs de la cuisine en vert clair.",
                "La lettre est arrivée trois jours après la fête.",
                "Son frère joue du piano mieux que tous les autres.",
                "Le lac gèle quand l'hiver est très froid.",
                "Chaque matin, le même homme passe devant la gare.",
                "Le film était beaucoup plus long que le livre.",
                "Il leur a fallu une heure pour trouver un hôtel.",
            ),
        ),
        "es": NeedleTexts(
            opening="Esta es una nota larga sobre varias personas y muchas otras cosas.",
            facts=("{a} vive en {b}", "{a} trabaja en {b}", "{a} estudia en {b}"),
            reminder="Como se dijo al principio,",
            cities=(
                "Londres, París, Berlín, Madrid, Roma, Viena, Dublín, Oslo, Atenas, Praga, Boston, Chicago, Toronto, "
                "Sídney, Tokio, Moscú, Múnich, Milán, Barcelona, Ámsterdam"
            ),
            between=(
                "El tiempo fue suave casi toda la semana.",
                "Nadie esperaba que la panadería cerrara tan temprano.",
                "Un perro pequeño dormía debajo de la mesa vieja.",
                "El tren llegó otra vez tarde por la nieve.",
                "La mayoría de las manzanas ya estaban recogidas.",
                "Alguien había dejado la ventana abierta toda la noche.",
                "El puente nuevo estará terminado el año que viene.",
                "Casi no había tráfico en la calle principal.",
                "A la sopa le falta un poco de sal y pimienta.",
                "Dos de las sillas de la sala estaban rotas.",
                "La biblioteca presta libros por cuatro semanas como máximo.",
                "Por la tarde empezó a llover con fuerza.",
                "El precio del café ha subido una vez más.",
                "Había un coche azul delante de la casa.",
                "El concierto tuvo que darse en una sala más grande.",
                "No recordaba dónde había puesto las llaves.",
                "En verano el jardín está lleno de rosas.",
                "Pintaron las paredes de la cocina de verde claro.",
                "La carta llegó tres días después de la fiesta.",
                "Su hermano toca el piano mejor que nadie.",
                "El lago se congela en los inviernos muy fríos.",
                "Cada mañana el mismo hombre pasa por la estación.",
                "La película era mucho más larga que el libro.",
                "Tardaron una hora en encontrar un hotel.",
            ),
        ),
    }
)
