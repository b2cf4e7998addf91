"""Shared by the commands: options, JSON on stdout, progress on stderr."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)

from headlab.cli.json_output import AsJson as AsJson
from headlab.cli.json_output import print_json as print_json
from headlab.core import (
    HeadlabError,
    Report,
    file_mode,
    is_folder,
    read_ablation,
    read_players,
    require_own_output,
    write_atomic,
    write_json,
)
from headlab.jobs import DATA, DEVICE, SEED, SUBJECT_FLAGS, label_map_of, languages_of
from headlab.results import Store, store_with_demo

if TYPE_CHECKING:
    from headlab.cluster.distributed_game import Team
    from headlab.core import Progress
    from headlab.hooks import Model
    from headlab.tasks import Task


ModelName = Annotated[str, typer.Option("--model", help=SUBJECT_FLAGS["model"].help)]
TaskName = Annotated[str, typer.Option("--task", help=SUBJECT_FLAGS["task"].help)]
DataFolder = Annotated[Path | None, typer.Option("--data", help=DATA.help)]
LabelMap = Annotated[str | None, typer.Option("--label-map", help=SUBJECT_FLAGS["label_map"].help)]
Languages = Annotated[str, typer.Option("--languages", help=SUBJECT_FLAGS["languages"].help)]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Ray workers (default: one a GPU, or one a processor)")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="compute on Ray: local (processes here), auto (this machine's cluster) or its host:port",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help=SEED.help)]
Device = Annotated[str | None, typer.Option("--device", help=DEVICE.help)]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        help="spread the model over several devices, in place of --device: auto, balanced, balanced_low_0 or sequential"
    ),
]
Dtype = Annotated[
    str, typer.Option(help="float32, float64, bfloat16 or float16: recorded in the report")
]
CacheRoot = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="folder of your results; default $HEADLAB_CACHE, ./cache if it exists, or the data folder of this platform",
    ),
]
NliModel = Annotated[
    Path | None,
    typer.Option(
        help="model fine-tuned on English NLI; default: models/e5-small-xnli beside the data"
    ),
]
PlayersFlag = Annotated[
    str | None,
    typer.Option(
        "--players",
        help="what is switched instead of heads: kv-groups, attention, feed-forward, neurons:N (N groups a layer) "
        "or layers; several joined by commas, as in heads,neurons:8",
    ),
]
MODEL = "e5-small-intents"
TASK = "intents"


@dataclass(frozen=True)
class TaskSelection:
    """The model, the task and the languages of a command."""

    model: ModelName = MODEL
    task: TaskName = TASK
    data: DataFolder = None
    label_map: LabelMap = None
    languages: Languages = "all"

    def load_task(self) -> Task:
        """The task in these languages.

        Raises:
            HeadlabError: The task or a language is unknown, or the label map is malformed.
        """
        return chosen_task(
            self.task, languages_of(self.languages), self.data, label_map_of(self.label_map)
        )


@dataclass(frozen=True)
class ComputeSettings:
    """What a command computes on, and where its results are."""

    device: Device = None
    device_map: DeviceMap = None
    dtype: Dtype = "float32"
    cache: CacheRoot = None

    def load(self, model: str) -> Model:
        """A model by its name."""
        import headlab

        return headlab.load(model, device=self.device, device_map=self.device_map, dtype=self.dtype)

    def store(self) -> Store:
        """The store of results. Raises HeadlabError if its folder is a file."""
        return open_store(self.cache)


def chosen_task(
    name: str,
    languages: list[str] | str,
    data: Path | None,
    label_map: Mapping[str, str] | None,
) -> Task:
    """The task of a command. Raises HeadlabError for one that is unknown."""
    from headlab.tasks.resolve import task

    return task(name, languages, data=data, label_map=label_map)


def playing(
    load: Callable[[str], Model], task: Task, players: str | None, store: Store
) -> Callable[[str], Model]:
    """A function that loads a model of which these players are switched.

    Args:
        load: Loads a model by its name.
        task: On whose dev examples groups of neurons are formed.
        players: As of --players; None for heads.
        store: Where the importance of neurons is looked up and kept.

    Raises:
        HeadlabError: The players are unknown.
    """
    if players is None or read_players(players).are_heads:
        return load

    def load_playing(name: str) -> Model:
        from headlab.methods import model_with_players

        return model_with_players(load(name), task, players, store=store)

    return load_playing


def check_ablation(name: str) -> str:
    """The ablation as it is recorded. Raises HeadlabError for an unknown one."""
    return read_ablation(name)


def check_workers(ray: str | None, workers: int | None) -> None:
    """Raise HeadlabError for a number of Ray workers where nothing says where they compute."""
    if workers is not None and ray is None:
        raise HeadlabError(
            "--workers says how many Ray workers compute; say where with --ray local or --ray auto",
            code="option.needs_ray",
        )


@contextmanager
def ray_workers(
    model: Model, address: str | None, workers: int | None, ablation: str
) -> Iterator[Team | None]:
    """The workers of a Ray cluster while the block runs; None if no cluster is named.

    Args:
        model: That they compute with.
        address: Of the cluster, as in `RayAddress`.
        workers: How many; None for one a GPU or processor.
        ablation: What stands in the place of a removed head.

    Raises:
        HeadlabError: There is no such cluster, or its workers do not know the ablation.
    """
    check_workers(address, workers)
    if address is None:
        yield None
        return
    require_own_output(ablation, "Ray's workers compute")
    from headlab.cluster.rays import team

    with team(model, address, workers) as helpers:
        yield helpers


def open_store(root: Path | None) -> Store:
    """The store of a command. Raises HeadlabError if its folder is a file."""
    store = store_with_demo(root)
    if file_mode(store.root) is not None and not is_folder(store.root):
        raise HeadlabError(
            f"{store.root} is a file; choose a folder for results with --cache or HEADLAB_CACHE",
            code="store.is_file",
        )
    return store


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar with time left, on stderr if that is a terminal.

    Yields:
        A function that shows (text, done, total).
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar_task = bar.add_task(title, total=None)

        def update(text: str, done: int, total: int) -> None:
            bar.update(bar_task, description=text, completed=done, total=total)

        yield update


def progress_callback(
    show_progress: Callable[[str, int, int], None], title: str
) -> Callable[[Progress], None]:
    """A callback that shows progress under a title."""
    return lambda progress: show_progress(title, progress.done, progress.total)


def recorded_command(subcommand: str, options: Mapping[str, object]) -> str:
    """The `headlab reproduce` command that gives the same result, without paths of this machine.

    Args:
        subcommand: Of `headlab reproduce`.
        options: {option: value}; None, False and empty lists are omitted, True is a switch, a list
            repeats its option, and a path is written as FOLDER.
    """
    words = ["headlab", "reproduce", subcommand, "--data", "DIR"]
    for option, value in options.items():
        items = value if isinstance(value, list | tuple) else [value]
        for item in items:
            if item is None or item is False:
                continue
            words.append(option)
            if item is not True:
                words.append(_option_text(item))
    return shlex.join(words)


def _option_text(value: object) -> str:
    if isinstance(value, Path):
        return "FOLDER"
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def command_without_paths(
    subcommand: str, smoke: bool, folders: Mapping[str, Path | None], dtype: str, seed: int
) -> str:
    """`recorded_command` with the options that most subcommands share.

    Args:
        subcommand: Of `headlab reproduce`.
        smoke: Whether it is the short version.
        folders: Path by option.
        dtype: Of the weights.
        seed: Of the run.
    """
    return recorded_command(
        subcommand, {"--smoke": smoke, **folders, "--dtype": dtype, "--seed": seed or None}
    )


def write_report(report: Report, folder: Path, command: str) -> None:
    """Write a report as JSON with the command that made it, and its tables as CSV."""
    write_json(folder / f"{report.name}.json", {"command": command, **report.to_json()})
    for table in report.tables:
        write_atomic(folder / f"{table.name}.csv", table.csv().encode())


def print_report(report: Report) -> None:
    """Print a report's tables and notes as Markdown on stdout."""
    typer.echo("\n\n".join(f"### {table.title}\n\n{table.markdown()}" for table in report.tables))
    for note in report.notes:
        typer.echo(f"\nnote: {note}")


# Training steps as a bar on a terminal, or as occasional lines elsewhere.

SECONDS_BETWEEN_LINES = 30.0  # seconds between two lines if stderr is not a terminal
ShowProgress = Callable[[str, int, int], None]


@contextmanager
def progress_display(title: str) -> Iterator[ShowProgress]:
    """A progress bar, or occasional lines if stderr is not a terminal.

    Yields:
        A function that shows (text, done, total).
    """
    with progress_bar(title) as show_progress:
        printed_at = time.monotonic()

        def show_or_print(text: str, done: int, total: int) -> None:
            nonlocal printed_at
            show_progress(text, done, total)
            if not sys.stderr.isatty() and time.monotonic() - printed_at >= SECONDS_BETWEEN_LINES:
                printed_at = time.monotonic()
                typer.echo(f"{done}/{total} {text}", err=True)

        yield show_or_print
