"""Whether a sentence speaks of good or of bad weather, in two languages; made, not read."""

from headlab.tasks import Example, Task

LABELS = ("bad", "good")
DAYS = {
    "en": ("today", "tomorrow", "on Monday", "on Friday", "at noon", "at night"),
    "de": ("heute", "morgen", "am Montag", "am Freitag", "mittags", "nachts"),
}
WEATHER = {
    "en": (("it rains", "it storms"), ("the sun shines", "it is warm")),
    "de": (("regnet es", "stürmt es"), ("scheint die Sonne", "ist es warm")),
}
DAYS_BY_SPLIT = {"train": slice(0, 2), "dev": slice(2, 4), "test": slice(4, 6)}


def read(language, split, seed):
    """The examples of a split; no two splits share a day."""
    return [
        Example(f"{language}/{split}/{day}/{words}", f"{day} {words}", label)
        for day in DAYS[language][DAYS_BY_SPLIT[split]]
        for label in range(len(LABELS))
        for words in WEATHER[language][label]
    ]


def weather_task(data):
    """The task.

    Args:
        data: The folder that `--data` names; not used, as nothing is read.
    """
    return Task("weather", LABELS, tuple(DAYS), aligned=True, read=read)
