"""The 17 classes, the 15 languages and the pinned sources of the task `intents`.

They are known where the sources, which the extra `demo` brings, are not installed.
"""

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = (
    "en",
    "de",
    "fr",
    "es",
    "ru",
    "bg",
    "el",
    "ar",
    "th",
    "vi",
    "zh-CN",
    "eu",
    "fi",
    "hu",
    "ml",
)
TRAIN_LANGUAGE = "en"
PINNED_VERSIONS = {"home-assistant-intents": "2026.10.27", "hassil": "3.12.1"}
SIZES = {"train": 8000, "dev": 512, "test": 1000}


@dataclass(frozen=True, slots=True)
class IntentClass:
    """One label and the Home Assistant intents grouped under it."""

    name: str
    intents: tuple[str, ...]
    meaning: str


CLASSES = (
    IntentClass("turn_on", ("HassTurnOn",), "switch on, open, lock, run a scene or script"),
    IntentClass("turn_off", ("HassTurnOff",), "switch off, close, unlock"),
    IntentClass(
        "get_state", ("HassGetState",), "ask for the state of a device, or where a person is"
    ),
    IntentClass("set_light", ("HassLightSet",), "brightness, colour, colour temperature"),
    IntentClass("set_position", ("HassSetPosition",), "open a cover or valve to a percentage"),
    IntentClass(
        "get_temperature", ("HassClimateGetTemperature",), "ask for the temperature indoors"
    ),
    IntentClass("set_temperature", ("HassClimateSetTemperature",), "set the heating"),
    IntentClass("get_weather", ("HassGetWeather",), "ask for the weather"),
    IntentClass("media_pause", ("HassMediaPause", "HassMediaUnpause"), "pause or resume playback"),
    IntentClass("media_skip", ("HassMediaNext", "HassMediaPrevious"), "next or previous track"),
    IntentClass(
        "set_volume",
        ("HassSetVolume", "HassSetVolumeRelative", "HassMediaPlayerMute", "HassMediaPlayerUnmute"),
        "volume, louder, quieter, mute, unmute",
    ),
    IntentClass(
        "list_add", ("HassListAddItem", "HassShoppingListAddItem"), "add an item to a list"
    ),
    IntentClass("timer_start", ("HassStartTimer",), "start a timer, or give a delayed command"),
    IntentClass(
        "timer_adjust",
        ("HassIncreaseTimer", "HassDecreaseTimer"),
        "add time to a timer, or take it away",
    ),
    IntentClass(
        "timer_cancel", ("HassCancelTimer", "HassCancelAllTimers"), "cancel one timer or all"
    ),
    IntentClass("timer_pause", ("HassPauseTimer", "HassUnpauseTimer"), "pause or resume a timer"),
    IntentClass(
        "vacuum",
        ("HassVacuumStart", "HassVacuumReturnToBase", "HassVacuumCleanArea"),
        "start a vacuum robot, clean a place, send it home",
    ),
)
LABELS = tuple(c.name for c in CLASSES)
