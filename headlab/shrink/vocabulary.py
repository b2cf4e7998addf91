"""Which pieces of a model's vocabulary stay when it is cut to some languages.

What stays: special tokens; all single characters and bytes; every piece of the texts that are given;
every piece of the languages' words, as wordfreq lists them, in lower case, capitalised and in
capitals; for a language that wordfreq has no words of, every piece of its script. A byte-pair
encoding also keeps the pieces on the way to these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from headlab.core import HeadlabError, do_nothing
from headlab.hooks import Model
from headlab.models.special_ids import padding_id
from headlab.shrink.pieces import Pieces, Side, is_script, rows_of
from headlab.shrink.read_pieces import embedding_rows, read_pieces
from headlab.shrink.vocabulary_cut import VocabularyCut
from headlab.tasks.translation import languages_of_pair

if TYPE_CHECKING:
    from langcodes import Language

WORDS = 75_000
"""Of each language. With all of wordfreq's, e5-small keeps 41 % of its parameters for German and Thai,
with these 34 %; of XNLI's German 1.3 % of the pieces are gone with all, 1.7 % with these."""
WORDS_AT_ONCE = 10_000
"""Forms of words that are held at once."""
ID_ENDING = "_token_id"
"""Of settings of a model that are token ids."""
FIRST_IDS = 100
"""Below it, a padding token is one of the first."""
SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "Jpan": ("Hani", "Hira", "Kana"),
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Hanb": ("Hani", "Bopo"),
    "Kore": ("Hang", "Hani"),
}
"""Of codes for more than one script of Unicode, or for a part of one, the scripts."""
TRADITIONAL_CHINESE = "Hant"
"""The script in which wordfreq lists no word of Chinese."""
WORDFREQ_CODES = {"hr": "sh", "bs": "sh", "no": "nb"}
"""Languages that wordfreq lists under another code."""


@dataclass(frozen=True)
class LanguagePieces:
    """What stays of a vocabulary for some languages, whatever texts are given.

    Attributes:
        languages: Codes.
        sources: By language, where its words came from: "wordfreq", or "script Thai".
        ids: Of the pieces that stay.
        pieces: The vocabulary.
        size: Rows of the embeddings.
    """

    languages: tuple[str, ...]
    sources: Mapping[str, str]
    ids: frozenset[int]
    pieces: Pieces
    size: int

    def cut_with(self, rows: Iterable[Sequence[int]]) -> VocabularyCut:
        """The cut that also keeps every piece of some texts.

        Args:
            rows: Token ids of each text.
        """
        kept_ids = set(self.ids)
        for row in rows:
            kept_ids.update(row)
        kept_ids |= self.pieces.on_the_way_to(kept_ids)
        return VocabularyCut(
            self.languages, self.sources, np.array(sorted(kept_ids), dtype=np.int64), self.size
        )


def pieces_of_languages(
    model: Model, languages: Sequence[str], tick: Callable[[], None] = do_nothing
) -> LanguagePieces:
    """The pieces of a model's vocabulary that stay for some languages.

    Args:
        model: The original.
        languages: Codes, or pairs like en-de, of which a tokenizer that splits sources and targets
            in different ways keeps the first language's words as sources, the second's as targets.
        tick: Called now and then; may raise to stop.

    Raises:
        HeadlabError: The tokenizer is of an unknown kind, wordfreq is not installed, or nothing is
            known of a language: neither words nor a script.
    """
    pieces = read_pieces(model)
    kept_ids = set(pieces.always_kept()) | _first_ids(model) | _named_ids(model)
    sources: dict[str, str] = {}
    for language, side in _languages_with_sides(languages, pieces):
        tick()
        words = words_of(language)
        if words is None:
            scripts = scripts_of(language)
            kept_ids.update(pieces.of_scripts(scripts, side))
            sources[language] = f"script {', '.join(scripts)}"
        else:
            kept_ids.update(pieces_of_words(pieces, words, side, tick))
            sources[language] = "wordfreq"
    size = embedding_rows(model.module)
    return LanguagePieces(tuple(languages), sources, frozenset(kept_ids), pieces, size)


def _languages_with_sides(languages: Sequence[str], pieces: Pieces) -> list[tuple[str, Side]]:
    """Every language, also of pairs, with the side that its words are split for, each once."""
    languages_with_sides: dict[tuple[str, Side], None] = {}
    for pair in languages:
        source, target = languages_of_pair(pair)
        languages_with_sides[source, "source"] = None
        languages_with_sides[target, pieces.sides[-1]] = None
    return list(languages_with_sides)


def _first_ids(model: Model) -> set[int]:
    """Ids up to the padding token's where that is one of the first: it keeps its number.

    RoBERTa and its kin count positions from it.
    """
    padding = getattr(model.module.config, "pad_token_id", None)
    if padding is None or padding >= FIRST_IDS:
        return set()
    return set(range(padding + 1))


def _named_ids(model: Model) -> set[int]:
    """Ids of tokens that the model's settings name."""
    generation_config = getattr(model.module, "generation_config", None)
    ids: set[int] = set()
    for config in (model.module.config, generation_config):
        for name, value in vars(config).items() if config is not None else ():
            if name.endswith(ID_ENDING) and value is not None:
                ids.update(value if isinstance(value, list) else [value])
    padding = padding_id(model.module, model.tokenizer)
    if padding is not None:
        ids.add(padding)
    rows = embedding_rows(model.module)
    return {token_id for token_id in ids if 0 <= token_id < rows}


def pieces_of_words(
    pieces: Pieces, words: Iterable[str], side: Side, tick: Callable[[], None]
) -> set[int]:
    """Ids of all pieces of words, each as listed, capitalised and in capitals.

    Args:
        pieces: The vocabulary.
        words: Of a language.
        side: That they are split for.
        tick: Called now and then.
    """
    ids: set[int] = set()
    once, twice = rows_of(pieces.tokenizer, ["a", "a a"], side)
    # Some tokenizers have pieces of their own for a word behind a space.
    forms = _forms(words, with_space=twice != [*once, *once])
    while forms_at_once := list(islice(forms, WORDS_AT_ONCE)):
        tick()
        ids |= pieces.ids_of(forms_at_once, side)
    return ids


def _forms(words: Iterable[str], *, with_space: bool) -> Iterator[str]:
    """The forms of words; with a space before each too, if that makes a difference."""
    for word in words:
        for form in dict.fromkeys((word, word.capitalize(), word.upper())):
            yield form
            if with_space:
                yield f" {form}"


def words_of(language: str) -> list[str] | None:
    """The most frequent words that wordfreq lists for a language; None if it has none.

    Of traditional Chinese it has none: its Chinese is written in simplified characters.

    Raises:
        HeadlabError: wordfreq is not installed.
    """
    try:
        import wordfreq
    except ImportError as error:
        raise HeadlabError(
            "cutting a vocabulary needs the package wordfreq, which is not installed; run: pip "
            "install 'headlab[vocabulary]'",
            code="package.wordfreq_missing",
        ) from error
    parsed_language = _parsed(language)
    if parsed_language is None or not _is_in_usual_script(parsed_language):
        return None
    code = str(parsed_language.language)
    code = WORDFREQ_CODES.get(code, code)
    if code not in wordfreq.available_languages("best"):
        return None
    return list(wordfreq.top_n_list(code, WORDS, "best"))


def _parsed(language: str) -> Language | None:
    """What a code says, as in BCP 47; None for what is no such code."""
    from langcodes import Language
    from langcodes.tag_parser import LanguageTagError

    try:
        return Language.get(language)
    except LanguageTagError:
        return None


def _is_in_usual_script(language: Language) -> bool:
    """Whether a language is written in the script that wordfreq lists its words in."""
    script = _script_code(language)
    if script == TRADITIONAL_CHINESE:
        return False
    usual_script = _script_code(type(language).get(str(language.language)))
    return language.script is None or script == usual_script


def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts of Unicode that a language is written in, by their codes in ISO 15924.

    Raises:
        HeadlabError: None is known.
    """
    parsed_language = _parsed(language)
    code = None if parsed_language is None else _script_code(parsed_language)
    scripts = () if code is None else SCRIPTS.get(code, (code,))
    if not scripts or not all(map(is_script, scripts)):
        raise HeadlabError(
            f"nothing is known of the language {language}: neither words nor a script; use its "
            "code as in ISO 639, like th or sw, or leave the vocabulary with --vocabulary keep",
            code="vocabulary.language_unknown",
        )
    return scripts


def _script_code(language: Language) -> str | None:
    """The code of the script that a language is written in; None if none is known.

    langcodes takes a language that it does not know for English.
    """
    from langcodes.data_dicts import LIKELY_SUBTAGS

    if language.script is not None:
        return language.script
    if language.language not in LIKELY_SUBTAGS:
        return None
    return language.maximize().script
