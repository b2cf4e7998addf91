"""Jobs that write a model with a mask built in to the worker's disk: `headlab export` from a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from headlab.core import HeadlabError, content_key
from headlab.jobs import (
    NO_CONTEXT,
    SEED,
    CommandContext,
    Estimate,
    ForecastBasis,
    Job,
    Lab,
    LabelMap,
    Languages,
    Measured,
    MeasureRequest,
    Name,
    Outcome,
    RunningJob,
    Seed,
    setting,
)
from headlab.jobs.export import DUO, EXPORT_DTYPE, VOCABULARY, ExportJob
from headlab.jobs.worth import MASK_PLACEHOLDER
from headlab.jobs.written_model import EXAMPLES_COMPARED, USUAL_COMPARED
from headlab.masks import mask_from_json
from headlab.results import MODELS_FOLDER
from headlab.tasks import check_label_map, task

KEY_LENGTH = 12
"""Hexadecimal digits of a folder's name, enough to tell jobs apart."""
NAME_LENGTH = 60
"""Characters of a model's name in that of a folder, at most."""
NO_FILE_NAME = re.compile(r"[^A-Za-z0-9_.]+")
"""What stands in no folder's name."""
MASK_FILE = "mask.json"
"""The mask's file, as the command in proof.json names it."""


class WriteJob(Job):
    """A model with a mask built in, written to the worker's disk.

    mask: as in a mask file; None to keep all heads.  form: as `headlab export --as` takes it.
    The other fields are its flags.
    """

    model: Name
    mask: dict[str, Any] | None = None
    form: Name
    task: Name | None = None
    label_map: LabelMap = None
    languages: Languages = "all"
    vocabulary: str | None = setting(VOCABULARY)
    size: int | None = setting(EXAMPLES_COMPARED)
    seed: Seed = setting(SEED)
    dtype: str | None = setting(EXPORT_DTYPE)

    key: ClassVar[str] = "write"
    name: ClassVar[str] = "Written model"
    about: ClassVar[str] = "A model with a mask built in, for software that does not know headlab."
    summary: ClassVar[str] = "A model with a mask built in, on the worker's disk."
    has_command: ClassVar[bool] = False

    def folder(self) -> str:
        """The folder that is written, relative to the cache.

        Its name ends in a hash of all that the written model depends on: of the mask the heads that
        it removes and what they give, of the examples nothing, unless heads give their mean on
        them. Jobs that write the same model share a folder.

        Raises:
            HeadlabError: The mask is none.
        """
        fields = self.model_dump(exclude={"seed", "size"})
        if self.mask is not None:
            mask = mask_from_json(self.mask, "the mask")
            fields["mask"] = [mask.digest, mask.of_means]
            if mask.of_means:
                fields["size"] = USUAL_COMPARED if self.size is None else self.size
        key = content_key(fields)[:KEY_LENGTH]
        name = NO_FILE_NAME.sub("-", Path(self.model).name)[:NAME_LENGTH].strip("-.")
        return f"{MODELS_FOLDER}/{name or 'model'}-{self.form}-{key}"

    def title(self) -> str:
        """The job as a heading; the languages are only of the examples and of the vocabulary."""
        return f"{self.name}, {self.model} as {self.form}"

    @contextmanager
    def _export(self, out: Path) -> Iterator[ExportJob]:
        """The job that `headlab export` would run, while the block runs: its mask is a file.

        Args:
            out: Folder that it writes.

        Raises:
            HeadlabError: The mask is none.
        """
        with TemporaryDirectory(prefix="headlab-") as folder:
            mask_file = None
            if self.mask is not None:
                mask_file = Path(folder) / MASK_FILE
                mask_from_json(self.mask, "the mask").save(mask_file)
            yield self._export_of(mask_file, out)

    def _export_of(self, mask_file: Path | None, out: Path) -> ExportJob:
        """The same job as `headlab export` has it.

        Args:
            mask_file: File of the mask; None to keep all heads.
            out: Folder that it writes.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "mask"}
        return ExportJob.model_construct(mask=mask_file, out=out, **fields)

    def resolve(self) -> Self:
        """The job, checked.

        Raises:
            HeadlabError: As in `ExportJob`, or the task or a language is unknown.
        """
        if self.form == DUO:
            raise HeadlabError(
                f"{DUO} is no model but a table of groups, and headlab export --as {DUO} writes it, from the terminal; "
                "choose a form with weights",
                code="export.form_of_terminal",
            )
        self._check_task()
        with TemporaryDirectory(prefix="headlab-") as folder, self._export(Path(folder)) as export:
            export.resolve()
        return self

    def _check_task(self) -> None:
        """Raise HeadlabError unless there is such a task, with these languages and labels.

        Where the vocabulary is cut, the task need not have all languages.
        """
        if self.task is None:
            if self.mask is not None and mask_from_json(self.mask, "the mask").of_means:
                raise HeadlabError(
                    "the mask was chosen under mean ablation, so its heads give their mean output, "
                    "which depends on examples; name their task",
                    code="export.means_need_task",
                )
            return
        is_cut = self._export_of(None, Path()).cuts_vocabulary
        chosen_task = task(self.task, "all" if is_cut else self.languages)
        if self.label_map is not None:
            check_label_map(chosen_task.name, chosen_task.labels, self.label_map)

    def forecast(self, known: ForecastBasis) -> Estimate:
        """Cost of the comparisons, and of what else the form takes."""
        with self._export(known.root / self.folder()) as export:
            export_estimate = export.forecast(known)
        request = export_estimate.measure_request
        if request is None:
            return export_estimate
        return replace(export_estimate, measure_request=replace(request, job=self))

    def measure(self, lab: Lab, request: MeasureRequest, tick: Callable[[], None]) -> Measured:
        """How long a plain forward pass takes on the examples that are compared."""
        with self._export(lab.store.root / self.folder()) as export:
            return export.measure(lab, request, tick)

    def run(self, lab: Lab, running: RunningJob) -> Outcome:
        """Write the folder; gives what `headlab export --json` prints, with the folder's name."""
        out = lab.store.root / self.folder()
        with self._export(out) as export:
            written: Mapping[str, Any] = export.run(lab, running)
        outcome = {**written, "folder": self.folder()}
        if "file" in outcome:
            outcome["file"] = f"{self.folder()}/{Path(outcome['file']).name}"
        return outcome

    # The command of the same work.

    def commands(self, context: CommandContext = NO_CONTEXT) -> list[list[str]]:
        """The command that writes the same model, with a name that stands for the mask's file."""
        mask_file = None if self.mask is None else Path(MASK_PLACEHOLDER)
        return self._export_of(mask_file, Path("FOLDER")).commands(context)
