"""Matplotlib's SVG made fit for documents: described, small, in their colours, with its own ids."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from hashlib import sha256

from headlab.charts.chart import Chart

INK = "#1b1f24"
SOFT = "#5a626c"
RULED = "#d5d9de"  # of text, of titles of axes, of grid lines
# What stands for them in a document, whose style sheet has a light and a dark theme.
VARIABLES = {
    INK: f"var(--ink, {INK})",
    SOFT: f"var(--soft, {SOFT})",
    RULED: f"var(--line, {RULED})",
}
FONTS = "Arial, Helvetica, 'Noto Sans', 'DejaVu Sans', sans-serif"  # of a file of its own
NAMESPACE = "http://www.w3.org/2000/svg"
PATH, DEFS, CLIP = (f"{{{NAMESPACE}}}{tag}" for tag in ("path", "defs", "clipPath"))
LINK = "{http://www.w3.org/1999/xlink}href"
DECIMALS = re.compile(r"-?\d+\.\d+")
FAMILY = re.compile(r"font-family: [^;]*;?\s*")
REFERENCE = re.compile(r"url\(#([^)]+)\)")
# attributes with coordinates
NUMERIC = (
    "d",
    "x",
    "y",
    "cx",
    "cy",
    "r",
    "width",
    "height",
    "transform",
)

Tips = dict[str, str]


def finished(drawn: bytes, chart: Chart, tips: Tips, *, is_inline: bool) -> str:
    """What matplotlib has drawn, as an element that stands in a document or in a file of its own.

    Args:
        drawn: Matplotlib's SVG.
        chart: What it shows.
        tips: Texts that describe parts of it, by their ids.
        is_inline: As in `headlab.charts.static.svg`.

    Returns:
        The element.
    """
    ET.register_namespace("", NAMESPACE)
    # Of no other chart in a document.
    name = f"c{sha256(drawn + chart.title.encode()).hexdigest()[:10]}"
    root = ET.fromstring(drawn)
    for defs in list(root.findall(DEFS)):
        if defs.find(f"{{{NAMESPACE}}}style") is not None:
            root.remove(defs)  # its rule for * would be the whole document's
    _draw_in_place(root)
    for element in list(root.iter()):
        _describe(element, tips)
        _simplify(element, is_inline=is_inline)
    _rename_ids(root, name)
    _flatten(root)
    _entitle(root, chart, name)
    if not is_inline:
        root.set("style", f"font-family: {FONTS}")
        paper = ET.Element(f"{{{NAMESPACE}}}rect", width="100%", height="100%", fill="#ffffff")
        root.insert(2, paper)  # behind all but the title and the description
    return ET.tostring(root, encoding="unicode")


def _describe(element: ET.Element, tips: Tips) -> None:
    tip = tips.get(element.get("id", ""))
    if tip is not None:
        title = ET.Element(f"{{{NAMESPACE}}}title")
        title.text = tip
        element.insert(0, title)


def _simplify(element: ET.Element, *, is_inline: bool) -> None:
    """Shorten coordinates, take the font from outside, and colours too if inline."""
    for attribute in NUMERIC:
        text = element.get(attribute)
        if text is not None:
            shorter = DECIMALS.sub(
                lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text
            )
            element.set(attribute, " ".join(shorter.split()))
    style = element.get("style")
    if style is not None:
        style = FAMILY.sub("", style).strip().rstrip(";")
        for colour, variable in VARIABLES.items() if is_inline else ():
            style = style.replace(colour, variable)
        element.set("style", style)
    if element.text is not None and not element.text.strip():
        element.text = None
    element.tail = None


def _draw_in_place(root: ET.Element) -> None:
    """Put each symbol where it is used, instead of a reference, of which a document has none."""
    paths = {element.get("id"): element.get("d", "") for element in root.iter(PATH)}
    for element in list(root.iter(f"{{{NAMESPACE}}}use")):
        x = element.attrib.pop("x")
        y = element.attrib.pop("y")
        path = paths[element.attrib.pop(LINK)[1:]]
        if "C" in path:  # the only symbol with curves, drawn from its lowest point
            element.tag = f"{{{NAMESPACE}}}circle"
            element.attrib |= {"cx": x, "cy": y, "r": path.split()[2]}
        else:
            element.tag = PATH
            element.attrib |= {"d": path, "transform": f"translate({x} {y})"}


def _rename_ids(root: ET.Element, name: str) -> None:
    """Keep ids of what cuts lines at the plot's edge, under the chart's name; drop the others."""
    new_ids: dict[str, str] = {}
    for element in root.iter():
        for target in REFERENCE.findall(element.get("clip-path", "")):
            new_ids.setdefault(target, f"{name}-{len(new_ids)}")
    for element in root.iter():
        old_id = element.attrib.pop("id", None)
        if old_id in new_ids:
            element.set("id", new_ids[old_id])
        clip = REFERENCE.match(element.get("clip-path", ""))
        if clip is not None:
            element.set("clip-path", f"url(#{new_ids[clip[1]]})")


def _flatten(parent: ET.Element) -> None:
    """Take the parts out of groups that say nothing, and leave out what cannot be seen."""
    for child in list(parent):
        if child.tag != DEFS:
            _flatten(child)
        is_group = child.tag == f"{{{NAMESPACE}}}g"
        has_title = child.find(f"{{{NAMESPACE}}}title") is not None
        if is_group and not child.attrib and not has_title:
            index = list(parent).index(child)
            parent.remove(child)
            for number, part in enumerate(child):
                parent.insert(index + number, part)
        elif child.get("style") == "fill: none" or (child.tag == DEFS and child.find(CLIP) is None):
            parent.remove(child)


def _entitle(root: ET.Element, chart: Chart, name: str) -> None:
    """Give the drawing its size, and its title and description for screen readers."""
    _, _, width, height = root.attrib["viewBox"].split()
    root.attrib.pop("version", None)
    for attribute, text in (("width", width), ("height", height)):
        root.set(attribute, DECIMALS.sub(lambda match: f"{float(match[0]):.0f}", text))
    root.set("stroke-linejoin", "round")
    root.set("role", "img")
    for number, (tag, text) in enumerate((("title", chart.title), ("desc", chart.description))):
        element = ET.Element(f"{{{NAMESPACE}}}{tag}", id=f"{name}-{tag}")
        element.text = text
        root.insert(number, element)
    root.set("aria-labelledby", f"{name}-title {name}-desc")
