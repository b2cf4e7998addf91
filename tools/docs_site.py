"""Build the documentation as a site: site/index.html, every page also as Markdown, llms.txt.

    make docs

The pages are copied to build/docs-source, where links out of docs/ and pages that are made (one for
each code of an error) are put in their places. Sphinx builds them, the examples of the gallery
included; a warning ends it. Then come the Markdown and the count of links that lead nowhere, which
ends it too. What the build took stands in site/build.json.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import docs_diagrams
import docs_errors
import docs_gallery
import docs_links
import docs_markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "build" / "docs-source"
TREES = ROOT / "build" / "docs-trees"
SITE = ROOT / "site"
FIGURES_FILE = "build.json"
# Documents beside docs/ that are pages of the site, by their names in it.
PROJECT_PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "SUPPORT.md": "project/support.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
}
OWN_SETTINGS = {"HEADLAB_DEMO", "HEADLAB_DATA", "HEADLAB_TASKS", "HEADLAB_WORKER", "HEADLAB_MODELS"}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CHART = re.compile(r"^<!-- chart (\w+) -->$", re.MULTILINE)
"""Where a page has the chart of an example; the repository's own view of the page shows nothing."""


def main() -> None:
    """Build the site, count, write down what it took."""
    start = time.perf_counter()
    if SITE.exists():
        shutil.rmtree(SITE)
    copy_sources()
    # The examples keep what they compute to themselves, and take nothing of one's own.
    environment = {key: value for key, value in os.environ.items() if key not in OWN_SETTINGS}
    environment |= {"HEADLAB_DOCS_ROOT": str(ROOT), "PYTHONHASHSEED": "0"}
    environment["HEADLAB_CACHE"] = str(ROOT / "build" / "docs-cache")
    environment["HF_HUB_OFFLINE"] = "1"
    environment["TQDM_DISABLE"] = "1"  # examples have no bars of progress, on a terminal neither
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "2"]
    command += ["-d", str(TREES), str(SOURCE), str(SITE)]
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        raise SystemExit("the site was not built: what is wrong stands above")
    docs_markdown.write_pages(SITE)
    docs_markdown.write_llms_txt(SITE)
    counts = docs_links.count(SITE)
    figures = {
        "docs_seconds": round(time.perf_counter() - start, 1),
        "gallery_examples": len(docs_gallery.GALLERY_ORDER),
        "pages": counts.pages,
        "error_pages": len(docs_errors.messages_by_code()),
        "internal_links": counts.internal,
        "dead_links": len(counts.dead),
        "links_to_outside": counts.outside,
    }
    (SITE / FIGURES_FILE).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for name, figure in figures.items():
        sys.stdout.write(f"{name}: {figure}\n")
    if counts.dead:
        raise SystemExit("links that lead nowhere:\n" + "\n".join(counts.dead))
    sys.stdout.write(f"{(SITE / 'index.html').relative_to(ROOT)}\n")


def copy_sources() -> None:
    """Copy the pages to where Sphinx reads them, and write those that are made."""
    if SOURCE.exists():
        shutil.rmtree(SOURCE)
    shutil.copytree(DOCS, SOURCE, ignore=shutil.ignore_patterns("*.log", "findings.md"))
    for path in sorted(SOURCE.rglob("*.md")):
        page = path.relative_to(SOURCE).as_posix()
        path.write_text(with_links_of_the_site(path.read_text("utf-8"), page, DOCS), "utf-8")
    for file, page in PROJECT_PAGES.items():
        text = with_links_of_the_site((ROOT / file).read_text("utf-8"), page, ROOT, file)
        (SOURCE / page).parent.mkdir(exist_ok=True)
        (SOURCE / page).write_text(f"---\norphan: true\n---\n\n{text}", "utf-8")
    docs_errors.write_pages(SOURCE / "errors")


def with_links_of_the_site(text: str, page: str, home: Path, file: str = "") -> str:
    """A page's text with its links to files of the repository led to where the site has them.

    Args:
        text: The page as it stands in the repository.
        page: Its name in the site.
        home: The folder that its links start from, unless the page is below it.
        file: Its name in the repository, where that is another one.
    """
    folder = (home / (file or page)).parent

    def led_right(match: re.Match[str]) -> str:
        opening, target, closing = match.groups()
        name, hash_sign, anchor = target.partition("#")
        if "://" in target or target.startswith("#") or not (folder / name).exists():
            return match.group()
        place = place_in_site((folder / name).resolve())
        up = os.path.relpath(place, Path(page).parent)
        return f"{opening}{up}{hash_sign}{anchor}{closing}"

    with_charts = CHART.sub("```{gallery-chart} \\1\n```", text)
    return LINK.sub(led_right, docs_diagrams.DIAGRAM.sub("```{flow-chart}\n\\1```", with_charts))


def place_in_site(path: Path) -> str:
    """Where the site has a file of the repository, copying one that it would not have.

    Args:
        path: The file.
    """
    in_repository = path.relative_to(ROOT).as_posix()
    if in_repository in PROJECT_PAGES:
        return PROJECT_PAGES[in_repository]
    if in_repository in ("README.md", "docs"):
        return "index.md"
    if path.parent == docs_gallery.EXAMPLES:
        return f"gallery/{'index' if path.suffix == '.rst' else path.stem}.rst"
    if path.is_relative_to(DOCS) and path.suffix != ".log":
        return path.relative_to(DOCS).as_posix()
    if path.is_dir():
        path = path / "README.md"
        in_repository = path.relative_to(ROOT).as_posix()
    # A file of another kind, or code: it is shown as text. A page that is none of the site's would
    # be taken for one by its ending.
    place = f"files/{in_repository}"
    if path.suffix == ".md":
        place += ".txt"
    copy = SOURCE / place
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    return place


if __name__ == "__main__":
    main()
