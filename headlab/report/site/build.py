"""From the results a user names to a folder of pages, which work without a server too."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import numpy as np

from headlab.charts.head_measures import (
    HeadMeasure,
    layer_measure,
    measures_of_roles,
    value_measure,
)
from headlab.charts.scatter import HeadGroup, groups_by_role, groups_by_sign, one_group
from headlab.core import (
    Head,
    HeadGrid,
    HeadlabError,
    Json,
    JsonLike,
    Report,
    fingerprint_of,
    part,
    write_atomic,
    write_json,
)
from headlab.methods import spec_of
from headlab.models import Writer, check_replaced, file_hashes, replacing_folder
from headlab.pictures import HARMS, HELPS, UNSURE, maps_of_scores, role_words
from headlab.report.build import (
    Document,
    PageLink,
    check_replaceable,
    document_of_words,
    group_of,
    html_of_document,
    page_template,
    replaced_characters,
    template_text,
)
from headlab.report.commands import Known
from headlab.report.maps import scale_key, scores_cells, stack_maps
from headlab.report.parts import Item, model_of
from headlab.report.sections.scores import scores_section
from headlab.results import HeadScores, Store
from headlab.roles import Roles, read_roles
from headlab.roles.table import NAME as ROLES

RECORD = "site.json"
"""Lists the site's other files, so that a changed one is never replaced."""
REPORT_FILE = "report.html"
SITE = Writer(
    "headlab report --site",
    ((RECORD, REPORT_FILE),),
    RECORD,
    "give the site a folder of its own, like --site heads-site",
    "--site",
)


class SitePage(NamedTuple):
    """One page of a site.

    Attributes:
        file: Its name in the folder.
        title: In the navigation and above the page.
        answers: What it shows, in a sentence.
        script: Name of the script that draws it; empty for a page that needs none.
    """

    file: str
    title: str
    answers: str
    script: str = ""


PAGES = (
    SitePage(
        "index.html",
        "Maps",
        "A map a result: rows are layers, columns are heads. A click on a head opens its page; Heads lists them all.",
    ),
    SitePage(
        "scatter.html",
        "Scatter",
        "All heads by any two of what is known of them. A point opens the head's page.",
        "scatter.js",
    ),
    SitePage(
        "head.html",
        "Heads",
        "One head: each of its values, with its interval where there is one, and its roles.",
        "head.js",
    ),
)
REPORT_PAGE = SitePage(
    REPORT_FILE, "Report", "All tables, where the numbers come from, and how they are made again."
)


@dataclass(frozen=True)
class SiteMap:
    """The map of one result.

    Attributes:
        title: Below it.
        drawings: SVG, one a stack, whose heads are links.
    """

    title: str
    drawings: Sequence[str]


@dataclass(frozen=True)
class MapGroup:
    """Maps on one scale.

    Attributes:
        title: What they are of.
        maps: In the order of the results.
        key: SVG, the key to their colours.
        notes: What to know of them, in sentences.
    """

    title: str
    maps: Sequence[SiteMap]
    key: str
    notes: Sequence[str]


@dataclass(frozen=True)
class SiteModel:
    """What the site has of one model.

    Attributes:
        name: Of the model.
        fingerprint: Of its weights; empty if unknown.
        map_groups: Its maps.
        data: Its heads for the scripts: names, measures, groupings, roles.
    """

    name: str
    fingerprint: str
    map_groups: Sequence[MapGroup]
    data: Mapping[str, Json]


@dataclass(frozen=True)
class Site:
    """A site before it is written.

    Attributes:
        title: Above every page.
        models: In the order in which they were named.
        written: When, in UTC.
        version: Of headlab.
    """

    title: str
    models: Sequence[SiteModel]
    written: str
    version: str


def write_site(
    words: Sequence[str],
    folder: Path,
    store: Store,
    *,
    title: str = "",
    declarations: Sequence[Path] = (),
    paths: bool = True,
    out: Path | None = None,
) -> tuple[Document, dict[str, int]]:
    """Write a folder of pages about what the words name, atomically.

    Args:
        words: As in `headlab.report.build.find_results`.
        folder: To write: a new name, an empty folder, or a site as it was written.
        store: Of the results.
        title: Of the site; names the models by default.
        declarations: Files that declare tasks, for results that do not say where theirs are.
        paths: Whether the commands of its report name files of this machine.
        out: A file for the report alone besides; None for none.

    Returns:
        The document of its report, and the bytes of every page by the name of its file.

    Raises:
        HeadlabError: As of `headlab.report.build.write_report`, for words that name no scores, and
            for a folder that may not be replaced or cannot be written.
    """
    check_replaced(folder, SITE)
    if out is not None:
        check_replaceable(out)
        if out.resolve().is_relative_to(folder.resolve()):
            raise HeadlabError(
                f"--out {out} lies in the site's folder {folder}, which has a report already; give --out another "
                "place, or leave it out",
                code="report.out_in_site",
            )
    report, items, known = document_of_words(
        words, store, title=title, declarations=declarations, paths=paths
    )
    models = list(_models(items, known))
    if not models:
        raise HeadlabError(
            "none of these results are scores of heads, which the pages of a site show; name a run of `headlab score` "
            "too, or make a report of them: --out report.html",
            code="report.site_without_scores",
        )
    site = Site(report.title, models, report.written, report.version)
    contents = {page.file: _html_of_page(site, page) for page in PAGES}
    contents[REPORT_FILE] = html_of_document(report, _links(REPORT_PAGE))
    way_on = "name another folder with --site, or make room"
    with replacing_folder(folder, way_on=way_on) as new_folder:
        for name, content in contents.items():
            (new_folder / name).write_bytes(content)
        record: dict[str, JsonLike] = {
            "title": site.title,
            "written": site.written,
            "version": site.version,
            "runs": [item.key for item in items],
            "files": dict(file_hashes(new_folder, RECORD)),
        }
        write_json(new_folder / RECORD, record)
    if out is not None:
        write_atomic(out, html_of_document(report))
    return report, {name: len(content) for name, content in contents.items()}


# What is known of the heads, by model.


def _models(items: Sequence[Item[object]], known: Known) -> Iterator[SiteModel]:
    """The models of which there are scores, in the order in which they were named."""
    scores_by_model: dict[tuple[str, str], list[Item[HeadScores]]] = {}
    roles_by_model: dict[tuple[str, str], list[Report]] = {}
    for item in items:
        record = item.record
        if isinstance(record, HeadScores):
            scores_by_model.setdefault(_model_of(record.spec), []).append(item)  # type: ignore[arg-type] # it holds scores
        elif isinstance(record, Report) and record.name == ROLES:
            roles_by_model.setdefault(_model_of(record.spec), []).append(record)
    names: Counter[str] = Counter()
    for model, score_items in scores_by_model.items():
        name, fingerprint = model
        names[name] += 1
        if names[name] > 1:
            name = f"{name} ({names[name]})"  # as the scripts call it
        reports = roles_by_model.get(model, [])
        yield SiteModel(
            name,
            fingerprint,
            list(_map_groups(name, score_items, known)),
            _data_of(model[0], score_items, reports),
        )


def _model_of(spec: Mapping[str, Json]) -> tuple[str, str]:
    """Name and today's fingerprint of a spec's model, in characters that a page can hold."""
    name, _ = model_of(spec)
    return replaced_characters(name), str(fingerprint_of(spec) or "")


def _map_groups(
    model_name: str, items: Sequence[Item[HeadScores]], known: Known
) -> Iterator[MapGroup]:
    """The maps of a model, those that can be compared on one scale.

    Args:
        model_name: As the pages call the model.
        items: Its scores.
        known: What the store of the report knows.
    """
    groups: dict[object, list[Item[HeadScores]]] = {}
    for item in items:
        groups.setdefault((group_of(item.record), item.record.grid), []).append(item)
    first_grid = items[0].record.grid
    for group in groups.values():
        section = scores_section(group, known)
        results = {str(number): item.record for number, item in enumerate(group)}
        head_maps = maps_of_scores(results)
        maps = []
        counts: Counter[str] = Counter()
        for scores, head_map in zip(results.values(), head_maps.values(), strict=True):
            links: list[str] = []
            if scores.grid == first_grid:  # the other pages have these heads alone
                links = [head_link(model_name, head, scores.grid) for head in scores.grid.heads]
            label = f"{scores.method} of every head in {scores.language}, {head_map.unit}"
            drawings = stack_maps(scores.grid, scores_cells(head_map), label, links)
            counts[scores.language] += 1
            title = scores.language
            if counts[title] > 1:
                title = f"{scores.language}, result {counts[scores.language]}"
            maps.append(SiteMap(title, drawings))
        legend = section.figures[-1].caption
        yield MapGroup(
            section.title, maps, scale_key(list(head_maps.values())), [legend, *section.notes]
        )


def head_name(head: Head, grid: HeadGrid) -> str:
    """A head as the pages name it: 11.8, or decoder.11.8 where there are several stacks."""
    number = f"{head.layer}.{head.head}"
    if len(grid.stacks) > 1:
        return f"{replaced_characters(head.stack)}.{number}"
    return number


def head_link(model_name: str, head: Head, grid: HeadGrid) -> str:
    """The address of a head's page.

    Args:
        model_name: As the pages call the model.
        head: The head.
        grid: All heads of its model.
    """
    return f"head.html#{urlencode({'model': model_name, 'head': head_name(head, grid)})}"


def _data_of(
    model_name: str, items: Sequence[Item[HeadScores]], reports: Sequence[Report]
) -> dict[str, Json]:
    """A model's heads for the scripts.

    Args:
        model_name: Of the model.
        items: Its scores; those on other heads than the first ones are left out.
        reports: Its reports on roles.
    """
    grid = items[0].record.grid
    scores = [item.record for item in items if item.record.grid == grid]
    roles_by_title = _roles_by_title(reports)
    measures = [*_measures_of_scores(scores)]
    colours: list[list[str]] = [_colours_of(one_result) for one_result in scores]
    for title, roles in roles_by_title.items():
        for maker in measures_of_roles(roles, grid, title).values():
            measures.append(maker())
    measures.append(layer_measure(grid))
    groupings: dict[str, list[HeadGroup]] = {}
    for measure, one_result in zip(measures, scores, strict=False):
        if one_result.signed and one_result.low is not None:
            groupings[f"sign: {measure.name}, {measure.language}"] = groups_by_sign(one_result)
    for title, roles in roles_by_title.items():
        groupings[f"role, {title}"] = groups_by_role(roles, grid.heads)
    groupings["none"] = one_group(grid.size)
    plain_colours = [UNSURE] * grid.size
    return {
        "name": model_name,
        "heads": [head_name(head, grid) for head in grid.heads],
        "measures": [
            _measure_data(measure, colours[number] if number < len(colours) else plain_colours)
            for number, measure in enumerate(measures)
        ],
        "groupings": [
            {"name": name, "groups": [_group_data(group) for group in groups]}
            for name, groups in groupings.items()
        ],
        "roles": [
            {"language": title, "roles": _roles_data(roles, grid)}
            for title, roles in roles_by_title.items()
        ],
    }


def _roles_by_title(reports: Sequence[Report]) -> dict[str, Roles]:
    """Reports on roles by their language, and by what sets those of one language apart.

    Args:
        reports: All of one model.
    """
    languages = Counter(str(part(report.spec, "task", "language")) for report in reports)
    roles_by_title: dict[str, Roles] = {}
    for report in reports:
        language = str(part(report.spec, "task", "language"))
        title = language
        if languages[language] > 1:
            title = f"{language} ({part(report.spec, 'task', 'name')})"
        number = 2
        while title in roles_by_title:
            title = f"{language} (report {number})"
            number += 1
        roles_by_title[title] = read_roles(report)
    return roles_by_title


def _measures_of_scores(scores: Sequence[HeadScores]) -> Iterator[HeadMeasure]:
    """The values of all scores, whose names say what sets those of one method apart."""

    def settings_of(result: HeadScores) -> tuple[str, str, str]:
        task = str(spec_of(result, "task", "name"))
        return task, result.estimand, str(spec_of(result, "ablation"))

    names = []
    for result in scores:
        same_method = [other for other in scores if other.method == result.method]
        differing = []
        for position, setting in enumerate(settings_of(result)):
            if len({settings_of(other)[position] for other in same_method}) > 1:
                differing.append(setting)
        name = f"value by {result.method}"
        if differing:
            name += f" ({', '.join(differing)})"
        names.append(name)
    counts: Counter[tuple[str, str]] = Counter()
    for result, name in zip(scores, names, strict=True):
        counts[name, result.language] += 1
        number = counts[name, result.language]
        yield value_measure(result, name if number == 1 else f"{name}, result {number}")


def _colours_of(scores: HeadScores) -> list[str]:
    """The colour of each head by its own interval: helps, harms, or neither for sure."""
    colours = np.where(scores.helpful, HELPS, np.where(scores.harmful, HARMS, UNSURE))
    return [str(colour) for colour in colours]


def _measure_data(measure: HeadMeasure, colours: Sequence[str]) -> dict[str, Json]:
    return {
        "name": measure.name,
        "language": measure.language,
        "unit": measure.unit,
        "values": _numbers(measure.values),
        "low": None if measure.low is None else _numbers(measure.low),
        "high": None if measure.high is None else _numbers(measure.high),
        "texts": [measure.text_of(index) for index in range(len(measure.values))],
        "colours": list(colours),
    }


def _numbers(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[Json]:
    """Numbers as JSON, None for what is not finite."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values]


def _group_data(group: HeadGroup) -> dict[str, Json]:
    return {
        "name": group.name,
        "colour": group.colour,
        "symbol": group.symbol,
        "heads": [int(index) for index in group.head_indices],
    }


def _roles_data(roles: Roles, grid: HeadGrid) -> list[Json]:
    """The roles of every head, in words with their shares."""
    lines: list[Json] = []
    for head in grid.heads:
        words: list[Json] = []
        for row in roles.roles_of(head):
            share = row.numbers["share, %"]
            words.append(role_words(row.role) + ("" if share is None else f", {share:.0f} %"))
        lines.append(words)
    return lines


# A page as HTML that needs nothing but itself.


def _html_of_page(site: Site, page: SitePage) -> bytes:
    scripts = ""
    if page.script:
        scripts = "\n".join(map(site_text, ("common.js", page.script)))
    text = page_template(site_text("site.html")).render(
        site=site,
        page=page,
        links=_links(page),
        css=f"{template_text('report.css')}\n{site_text('site.css')}",
        data=inline_json({"models": [dict(model.data) for model in site.models]}),
        scripts=scripts,
        script_hashes=f"'sha256-{script_hash(scripts)}'" if scripts else "'none'",
    )
    return replaced_characters(text).encode("utf-8")


def _links(page: SitePage) -> list[PageLink]:
    """The navigation of a page: links to all pages, of which it is one."""
    return [
        PageLink(other.file, other.title, is_current=other.file == page.file)
        for other in (*PAGES, REPORT_PAGE)
    ]


def inline_json(value: Mapping[str, object]) -> str:
    """JSON that can stand in a script element: no text in it ends the element.

    Args:
        value: Of JSON types.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def script_hash(script: str) -> str:
    """What a page's security policy calls a script that may run, by its content."""
    return b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def site_text(name: str) -> str:
    """The text of one of the site's template files."""
    return (resources.files("headlab.report.site") / name).read_text("utf-8")
