"""Names of languages, as pages and the list of jobs write them."""

from __future__ import annotations

from collections.abc import Sequence

LANGUAGES = {
    "ar": "Arabic",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "id": "Indonesian",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "ko": "Korean",
    "lt": "Lithuanian",
    "ml": "Malayalam",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovene",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
    "zh-CN": "Chinese",
}
MAX_LISTED = 3  # languages that a title lists; of more it says how many there are


def language_title(code: str) -> str:
    """'German (de)': the name and its code."""
    if code in LANGUAGES:
        return f"{LANGUAGES[code]} ({code})"
    return code


def language_titles(codes: Sequence[str]) -> str:
    """'German (de), Thai (th)', or how many there are."""
    if len(codes) > MAX_LISTED:
        return f"{len(codes)} languages"
    return ", ".join(map(language_title, codes))
