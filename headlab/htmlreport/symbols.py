"""The marks of a chart's dots, by the names that Plotly gives them; "-open" ones are outlines."""

from __future__ import annotations

from headlab.htmlreport.svg import element

# Paths around (0, 0) in halves of the size.
PATHS = {
    "diamond": "M0 -1.25L1.25 0L0 1.25L-1.25 0Z",
    "square": "M-.95 -.95H.95V.95H-.95Z",
    "triangle-up": "M0 -1.2L1.15 .85H-1.15Z",
    "cross": "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
    "x": "M-1.1 -.55L-.55 -1.1L0 -.55L.55 -1.1L1.1 -.55L.55 0L1.1 .55L.55 1.1L0 .55L-.55 1.1L-1.1 .55L-.55 0Z",
    "line-ns": "M0 -1.3V1.3",
}
OPEN = "-open"


def drawn(symbol: str, x: float, y: float, size: float, colour: str) -> str:
    """A mark of that size in pixels; a name that is not known gives a circle."""
    name, outline = symbol.removesuffix(OPEN), symbol.endswith(OPEN) or symbol.startswith("line")
    fill = "none" if outline else colour
    path = PATHS.get(name)
    if path is None:
        return element("circle", cx=x, cy=y, r=size / 2, fill=fill, stroke=colour, stroke_width=1.5)
    scale = size / 2
    return element(
        "path", d=path, transform=f"translate({x:.1f} {y:.1f}) scale({scale:g})", fill=fill, stroke=colour,
        stroke_width=1.5 / scale,
    )  # fmt: skip
