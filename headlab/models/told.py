"""What a translation model must be told besides a text: a prefix, or the languages by its tokenizer's own codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headlab.errors import HeadlabError
from headlab.tasks.translation import sides

TASKS = re.compile(r"translation_(\w+?)_to_(\w+)")  # T5's names of what it was trained on
CODE = re.compile(r"[a-z]{2,3}_[A-Za-z0-9]+")  # de_DE, deu_Latn


@dataclass(frozen=True)
class Told:
    """What stands before every source and every translation; nothing, for a model of one pair.

    prefix: text before a source.  source, target: the tokenizer's codes.  first: token that a translation begins
    with, which is given and not asked for.  start: token that the decoder begins with, where the model names none.
    """

    prefix: str = ""
    source: str = ""
    target: str = ""
    first: int | None = None
    start: int | None = None

    @contextmanager
    def set_up(self, tokenizer: Any) -> Iterator[None]:
        """The tokenizer with the two codes set, until the block ends."""
        if not self.source:
            yield
            return
        before = tokenizer.src_lang, tokenizer.tgt_lang
        try:
            tokenizer.src_lang, tokenizer.tgt_lang = self.source, self.target
            yield
        finally:
            tokenizer.src_lang, tokenizer.tgt_lang = before

    def settings(self) -> dict[str, Any]:
        """What the same is called where a model is to write."""
        given = {"forced_bos_token_id": self.first, "decoder_start_token_id": self.start}
        return {name: value for name, value in given.items() if value is not None}


def told(config: Any, tokenizer: Any, language: str) -> Told:
    """What a model is to be told for a pair like en-de; of a language that is not a pair both sides are texts.

    A T5 is told by the prefix in its `task_specific_params`, a Marian model of many targets by a mark (>>de<<), mBART,
    M2M and NLLB by their codes.  Raises HeadlabError where a model must be told what it has no name for.
    """
    source, target = sides(language)
    if source != target:
        prefixes = _prefixes(config)
        if prefixes:
            return Told(prefix=_prefix(prefixes, source, target))
        marks = getattr(tokenizer, "supported_language_codes", None)
        if marks:
            return Told(prefix=f">>{_code(target, [mark.strip('><') for mark in marks])}<< ")
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        return _by_codes(config, tokenizer, source, target)
    return Told()


def _prefixes(config: Any) -> dict[tuple[str, str], str]:
    """{(source, target): prefix} of the translations that a model names."""
    named = getattr(config, "task_specific_params", None) or {}
    found = ((TASKS.fullmatch(name), params) for name, params in named.items())
    return {(m[1], m[2]): str((params or {}).get("prefix", "")) for m, params in found if m is not None}


def _prefix(prefixes: dict[tuple[str, str], str], source: str, target: str) -> str:
    found = [p for (a, b), p in prefixes.items() if (_first(a), _first(b)) == (_first(source), _first(target))]
    if len(found) != 1:
        raise HeadlabError(
            f"the model's task_specific_params name translations of {', '.join('-'.join(p) for p in prefixes)}, and it "
            f"is to translate {source}-{target}; put translation_{_first(source)}_to_{_first(target)} with its prefix "
            "(it may be empty) into its config.json",
            code="translation.prefix_missing",
        )
    return found[0]


def _by_codes(config: Any, tokenizer: Any, source: str, target: str) -> Told:
    codes = list(getattr(tokenizer, "lang_code_to_token", None) or filter(CODE.fullmatch, tokenizer.all_special_tokens))
    if not codes:
        raise HeadlabError(
            f"{type(tokenizer).__name__} must be told its languages, and headlab cannot determine how; "
            "use a model of one pair",
            code="translation.codes_missing",
        )
    found = Told(source=_code(source, codes), target=_code(target, codes))
    number = int(getattr(tokenizer, "get_lang_id", tokenizer.convert_tokens_to_ids)(found.target))
    with found.set_up(tokenizer):
        ids = tokenizer(text_target="a")["input_ids"]
    if ids[0] == number:
        return Told(source=found.source, target=found.target, first=number)
    if ids[-1] == number and config.model_type == "mbart":  # its decoder begins with what its targets end with
        return Told(source=found.source, target=found.target, start=number)
    raise HeadlabError(
        f"{type(tokenizer).__name__} does not put the code {found.target} before a translation (legacy_behaviour?); "
        "save it again with the code in front",
        code="translation.code_not_in_front",
    )


def _code(asked: str, codes: Iterable[str]) -> str:
    """The code of a language: the same, or the one that begins with it."""
    codes = list(codes)
    same = [code for code in codes if _plain(code) == _plain(asked)]
    found = same or [code for code in codes if _first(code) == _first(asked)]
    if len(found) != 1:
        some = ", ".join((found or codes)[:6])
        raise HeadlabError(
            f"the model's tokenizer has {'several codes' if found else 'no code'} for {asked!r} ({some}…); name the "
            "pair, and its files, by the tokenizer's own codes, like eng_Latn-deu_Latn",
            code="translation.code_ambiguous" if found else "translation.code_unknown",
        )
    return found[0]


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def _first(code: str) -> str:
    return _plain(code).partition("-")[0]
