"""The scores that a job asks for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headlab.worker.schemas import Ablation, Language, Name, Seed, Size, SplitName, Strict

Languages = Annotated[list[Language], Field(min_length=1, max_length=200)] | Literal["all"]
Options = Annotated[dict[Name, bool | int | float | str | None], Field(max_length=32)]


class ScoreSpec(Strict):
    """Head scores of a model by one method, in some languages of a task ("all": in every one)."""

    model: Name
    task: Name
    languages: Languages
    method: Name = "shapley"
    options: Options = Field(default_factory=dict)
    seed: Seed = 0
    split: SplitName = "dev"
    size: Size = 512
    ablation: Ablation = "zero"
