"""The pictures of the README and of docs/demo.md, taken of the running demo.

    python tools/pictures.py

It serves the app of this checkout with an empty cache of its own, opens the first finding that says
that heads hurt a language, and switches these heads off one by one on test examples. What the pages
show is what the embedded model gives; nothing is drawn but the circle where the pointer is. The
pictures go to docs/images. Needs Chromium, and takes some minutes.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from support.browsing import DEADLINE, IDLE_APP  # noqa: E402 - after the path to it
from support.built_wheel import served_app  # noqa: E402

IMAGES = ROOT / "docs" / "images"
OVERVIEW = IMAGES / "heads.png"
PRUNED = IMAGES / "prune.png"
ANIMATED = IMAGES / "prune.gif"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
WINDOW = {"width": 1440, "height": 900}
ANIMATED_WIDTH = 960
COLOURS = 256
NEARLY_WHITE = 248
MAX_ANIMATED_BYTES = 1_500_000
FIRST_MS, POINTED_MS, SWITCHED_MS, LAST_MS = 1500, 350, 800, 4000
"""How long the frames stay: all heads on, the pointer over a head, that head off, all of them off."""
MARGIN = 12
# A circle where the pointer is, which a screenshot leaves out.
DRAW_POINTER = """([x, y]) => {
  let ring = document.getElementById('pointer-of-the-picture');
  if (!ring) {
    ring = document.createElement('div');
    ring.id = 'pointer-of-the-picture';
    ring.style = 'position:fixed;box-sizing:border-box;width:32px;height:32px;margin:-16px;'
      + 'border:3px solid #7b2d8b;border-radius:50%;pointer-events:none;z-index:99999999';
    document.body.append(ring);
  }
  ring.style.left = x + 'px';
  ring.style.top = y + 'px';
}"""
HIDE_POINTER = "() => document.getElementById('pointer-of-the-picture')?.remove()"


@dataclass(frozen=True)
class Frame:
    """A picture of the animation, and how long it stays."""

    image: Image.Image
    milliseconds: int


def opened(page: Any, address: str) -> None:
    """Open an address, and wait until the app has drawn its page with a map of heads."""
    page.goto(address)
    page.locator('[data-c="0.0"]').first.wait_for()
    page.locator(IDLE_APP).wait_for()


def harmful_heads(page: Any, address: str) -> tuple[str, list[str]]:
    """A language that some heads hurt, and these heads, by the first finding that says so.

    Args:
        page: Of the browser.
        address: Of the app.
    """
    opened(page, address)
    page.locator('[data-c="11.11"]').nth(14).wait_for()
    # The worker starts meanwhile; the picture is of the page as it is from then on.
    page.get_by_text("Worker: ready").wait_for()
    page.locator(IDLE_APP).wait_for()
    page.screenshot(path=OVERVIEW)
    page.get_by_role("button", name=re.compile(r"\d+ heads hurt ")).click()
    off = page.locator('[data-c][aria-checked="false"]')
    off.first.wait_for()
    language = re.search(r"[?&]from=([\w-]+)", page.url)
    assert language is not None, page.url
    return language.group(1), [str(cell.get_attribute("data-c")) for cell in off.all()]


def wait_for_final_figures(page: Any, off_count: int) -> None:
    """Wait until every example of test has been answered with so many heads off."""
    heads = {0: "All heads on", 1: "1 head off"}.get(off_count, f"{off_count} heads off")
    page.get_by_text(re.compile(rf"{heads}: final, [\d,]+ test examples")).wait_for()
    page.locator('[data-state="live"]').first.wait_for(state="detached")
    page.locator(IDLE_APP).wait_for()
    page.wait_for_timeout(400)  # bars and figures glide to their new places


def picture(page: Any) -> Image.Image:
    """The part of the Prune page with the sentence, the map and the figures."""
    sentence = page.get_by_text(re.compile(r" on test: ")).first.bounding_box()
    undo = page.get_by_role("button", name="Undo").bounding_box()
    assert sentence is not None
    assert undo is not None
    left = sentence["x"] - MARGIN
    top = sentence["y"] - MARGIN
    bottom = undo["y"] + undo["height"] + MARGIN / 2
    clip = {"x": left, "y": top, "width": WINDOW["width"] - left - MARGIN, "height": bottom - top}
    taken = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    height = round(taken.height * ANIMATED_WIDTH / taken.width)
    return taken.resize((ANIMATED_WIDTH, height), Image.Resampling.LANCZOS)


def pruning(page: Any, address: str, language: str, heads: Sequence[str]) -> list[Frame]:
    """The frames in which heads are switched off one after another.

    Args:
        page: Of the browser.
        address: Of the app.
        language: Its figures are shown.
        heads: Heads as the map names them, "layer.head".
    """
    opened(page, f"{address}/prune?langs={language}&split=test")
    wait_for_final_figures(page, 0)
    frames = [Frame(picture(page), FIRST_MS)]
    for off_count, head in enumerate(heads, 1):
        cell = page.locator(f'[data-c="{head}"]')
        box = cell.bounding_box()
        assert box is not None
        page.evaluate(DRAW_POINTER, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
        frames.append(Frame(picture(page), POINTED_MS))
        cell.click()
        page.mouse.move(0, 0)  # away, so that no help is drawn over the map
        wait_for_final_figures(page, off_count)
        frames.append(Frame(picture(page), SWITCHED_MS))
    page.evaluate(HIDE_POINTER)
    page.mouse.move(WINDOW["width"] / 2, 5)
    page.screenshot(path=PRUNED)
    return [*frames, Frame(picture(page), LAST_MS)]


def write_animation(frames: Sequence[Frame]) -> None:
    """Write the frames as one GIF, with one palette for all, so that nothing flickers."""
    size = frames[0].image.size
    # What has all colours: a map with the pointer on it, and the one with the most heads off.
    samples = Image.new("RGB", (size[0], 2 * size[1]), "white")
    samples.paste(frames[1].image, (0, 0))
    samples.paste(frames[-1].image, (0, size[1]))
    palette = samples.quantize(COLOURS, kmeans=COLOURS, dither=Image.Dither.NONE)
    # White is averaged with what is nearly white, and found by its leading bits alone.
    colours = palette.getpalette() or []
    for index in range(0, len(colours), 3):
        if min(colours[index : index + 3]) >= NEARLY_WHITE:
            colours[index : index + 3] = [255, 255, 255]
    palette.putpalette(colours)
    images = []
    for frame in frames:
        image = frame.image
        if image.size != size:  # a sentence that takes a second line makes the picture taller
            image = image.crop((0, 0, *size))
        images.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
    images[0].save(
        ANIMATED,
        save_all=True,
        append_images=images[1:],
        duration=[frame.milliseconds for frame in frames],
        loop=0,
        optimize=True,
    )
    written_bytes = ANIMATED.stat().st_size
    if written_bytes > MAX_ANIMATED_BYTES:
        raise SystemExit(f"{ANIMATED.name} has {written_bytes:,} bytes: take fewer colours")


def main() -> None:
    """Take the pictures and write them."""
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"no Chromium: none of {', '.join(BROWSERS)} is on the PATH")
    with tempfile.TemporaryDirectory(prefix="headlab-pictures-") as name, sync_playwright() as play:
        folder = Path(name)
        environment = {**os.environ, "HEADLAB_CACHE": str(folder), "PYTHONPATH": str(ROOT)}
        for variable in ("HEADLAB_DEMO", "HEADLAB_WORKER"):
            environment.pop(variable, None)
        chromium = play.chromium.launch(executable_path=browser, args=FLAGS)
        page = chromium.new_page(viewport=WINDOW, color_scheme="light")
        page.set_default_timeout(DEADLINE)
        command = [sys.executable, "-m", "headlab.cli"]
        with served_app(command, folder, environment) as address:
            language, heads = harmful_heads(page, address)
            write_animation(pruning(page, address, language, heads))
            chromium.close()
    for path in (OVERVIEW, PRUNED, ANIMATED):
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
