"""What a user has to know of how a task of lm-evaluation-harness was answered, as sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from headlab.core import Json

Documents = defaultdict[str, set[Hashable]]  # by task, their numbers


def _documents() -> Documents:
    return defaultdict(set)


@dataclass
class TaskNotes:
    """Documents that are not answered as their task writes them, and settings that are not used.

    Attributes:
        limit: a sentence on the number of tokens that the model takes, where it is a guess.
        cut: documents whose context lost its beginning, as the model takes fewer tokens.
        merged: documents of whose context and choices the tokenizer makes common tokens.
        blank: documents with a choice of white space alone.
        tokenless: documents whose whole text, of which the probability is asked, has no token.
        sampling: settings of each task that ask for answers drawn at random.
        unused: further settings of each task that do not enter.
        repeats: number of answers to each document, where a task asks for several.
    """

    limit: str = ""
    cut: Documents = field(default_factory=_documents)
    merged: Documents = field(default_factory=_documents)
    blank: Documents = field(default_factory=_documents)
    tokenless: Documents = field(default_factory=_documents)
    sampling: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    unused: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """All notes; each of a task is a sentence that begins with its name."""
        of_model = [self.limit] if self.limit else []
        return [
            *of_model,
            *self._of_documents(
                self.cut,
                "the beginning of the context is cut, as the model takes fewer tokens",
            ),
            *self._of_documents(
                self.merged,
                "the tokenizer merges the end of the context with what follows, so the context of all "
                "its choices ends before the merged token; the harness's own models score other "
                "tokens there, or none",
            ),
            *self._of_documents(
                self.blank,
                "a choice is white space alone; acc_norm, which divides by its length, may never take it",
            ),
            *self._of_documents(
                self.tokenless,
                "the text has no token, so it counts as certain; that lowers perplexity",
            ),
            *self._of_settings(),
        ]

    @staticmethod
    def _of_documents(documents_by_task: Documents, sentence: str) -> list[str]:
        sentences = []
        for task, documents in documents_by_task.items():
            noun = "document" if len(documents) == 1 else "documents"
            sentences.append(f"{task}: in {len(documents):,} {noun} {sentence}")
        return sentences

    def _of_settings(self) -> list[str]:
        sentences = []
        for task, settings in self.sampling.items():
            sentences.append(
                f"{task}: the task draws its answers at random ({_settings_text(settings)}); headlab "
                "decodes greedily, so that nothing but the mask differs between two models"
            )
        for task, settings in self.unused.items():
            sentences.append(
                f"{task}: headlab does not use these settings of the task: {_settings_text(settings)}",
            )
        for task, repeats in self.repeats.items():
            sentences.append(
                f"{task}: the task asks for {repeats} answers to each document; decoded greedily, they are the same"
            )
        return sentences


def _settings_text(settings: Mapping[str, Json]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
