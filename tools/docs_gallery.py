"""The gallery of the site: in which order its examples stand, and how their charts are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from headlab.charts.chart import Chart

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GALLERY_ORDER = (
    "plot_map_of_a_language.py",
    "plot_heads_that_hurt.py",
    "plot_interval_and_samples.py",
    "plot_two_languages.py",
    "plot_mask_on_test.py",
    "plot_curve.py",
    "plot_front.py",
    "plot_attention_of_a_head.py",
    "plot_roles.py",
    "plot_savings_of_a_mask.py",
    "plot_smaller_model.py",
    "plot_heads_of_few_languages.py",
    "plot_own_data.py",
    "plot_own_method.py",
    "plot_decoder.py",
)
"""The examples from the first to the last; `docs/gallery.md` names the question of each."""
DRAWN = "_charts_drawn"
"""The global of an example that holds which of its charts have been shown."""


class GalleryPosition:
    """The place of an example in the gallery, as sphinx-gallery asks for it.

    Args:
        src_dir: The folder of the examples.
    """

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> int:
        """The place of one example, counted from 0.

        Args:
            filename: Its file, with or without its folder.
        """
        return GALLERY_ORDER.index(Path(filename).name)

    def __repr__(self) -> str:
        return "GalleryPosition"


def chart_scraper(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Show the chart that a block of an example has made.

    What an example calls `chart` is shown as a drawing of the page, whose colours follow its theme,
    and written as the PNG file that previews and the page's Markdown show.

    Args:
        block: The block of code.
        block_vars: What sphinx-gallery knows of the example.
        gallery_conf: Its settings.

    Returns:
        The lines of the page.
    """
    # Imports matplotlib, which lists of examples do not need.
    from headlab.charts import static

    example_globals = block_vars["example_globals"]
    drawn = example_globals.setdefault(DRAWN, set())
    lines = []
    for chart in _charts(example_globals):
        if id(chart) in drawn:
            continue
        drawn.add(id(chart))
        path = Path(next(block_vars["image_path_iterator"]))
        path.write_bytes(static.png(chart))
        drawing = static.svg(chart, is_inline=True)
        path.with_suffix(".svg").write_text(drawing, encoding="utf-8")
        in_sources = PurePosixPath(path.relative_to(gallery_conf["src_dir"]).as_posix())
        lines += [
            ".. raw:: html",
            "",
            '    <div class="chart">',
            *(f"    {line}" for line in drawing.splitlines()),
            "    </div>",
            "",
            f".. image:: /{in_sources}",
            f"    :alt: {chart.title}",
            "    :class: chart-file",
            "    :loading: lazy",
            "",
        ]
    return "\n".join(lines)


def _charts(example_globals: dict[str, Any]) -> Iterator[Chart]:
    chart = example_globals.get("chart")
    if isinstance(chart, Chart):
        yield chart


def load_each_model_once(gallery_conf: dict[str, Any], file: str) -> None:
    """Let the examples share the models that they load from headlab itself.

    Each example loads the embedded model as a person would, which takes seconds every time.

    Args:
        gallery_conf: Settings of sphinx-gallery.
        file: The example that comes next.
    """
    import headlab

    if isinstance(headlab.load, _SharedModels):
        return
    vars(headlab)["load"] = _SharedModels(headlab.load)


def load_models_anew() -> None:
    """Give `headlab.load` back, once the examples are through: the reference describes it."""
    import headlab

    if isinstance(headlab.load, _SharedModels):
        vars(headlab)["load"] = headlab.load.load


class _SharedModels:
    """`headlab.load`, but each name is loaded once.

    Args:
        load: The function itself.
    """

    def __init__(self, load: Callable[..., Any]) -> None:
        self.load = load
        self.models: dict[str, Any] = {}

    def __call__(self, name: str, **options: Any) -> Any:
        """The model of a name.

        Args:
            name: As `headlab.load` takes it.
            options: Of `headlab.load`.
        """
        if options:
            return self.load(name, **options)
        if name not in self.models:
            self.models[name] = self.load(name)
        return self.models[name]
