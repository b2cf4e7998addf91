"""The style of the pages: every selector matches something in the pages of Streamlit."""

from __future__ import annotations

import re
from pathlib import Path

from support.browsing import link_with_model

STYLE = Path(__file__).parents[2] / "headlab" / "dashboard" / "static" / "page.css"
# A figure is provisional, with a rule of its own, for a moment only; then it is final, and
# otherwise drawn alike.
PROVISIONAL = '[class*="st-key-provisional-"]'
FIGURE = f':is({PROVISIONAL}, [class*="st-key-final-"])'
# Of each page, the part that is drawn last among those that rules are about.
LAST_PARTS_BY_ADDRESS = {
    "/?langs=de&langs=th": [
        ".st-key-overview [class*='st-key-maps-'] > *",
        ".st-key-overview-details [data-testid='stPageLink'] p",
    ],
    "/?langs=de&method=smoothed": [".st-key-shapley-next"],
    "/heads?langs=de&langs=th": ["[class*='st-key-maps-'] > *"],
    "/attention?langs=de&langs=th&heads=encoder.3.7&heads=encoder.5.1": [
        ".st-key-enlarged-head [data-testid='stRadio']",
    ],
    "/prune?langs=de": [f"{FIGURE} [data-testid='stMetricValue']"],
    "/jobs": [".st-key-new-job [class*='st-key-forecast-']"],
}


def selectors() -> list[str]:
    """The selectors of the style's rules, each one alone."""
    without_comments = re.sub(r"/\*.*?\*/", "", STYLE.read_text(encoding="utf-8"), flags=re.DOTALL)
    without_media = re.sub(r"@media[^{]*\{", "", without_comments)
    found_selectors = set()
    for rule in re.findall(r"([^{}]+)\{[^{}]*\}", without_media):
        for selector in rule.strip(" }\n").split(","):
            found_selectors.add(selector.strip().replace(PROVISIONAL, FIGURE))
    return sorted(found_selectors)


def test_each_selector_matches_a_part_of_some_page(visit, page, light_model):
    unmatched = selectors()
    assert len(unmatched) > 15
    for address, last_parts in LAST_PARTS_BY_ADDRESS.items():
        visit(link_with_model(address, light_model) if "prune" in address else address)
        for last_part in last_parts:  # some are in a closed fold
            page.locator(last_part).first.wait_for(state="attached")
        unmatched = page.evaluate(
            "selectors => selectors.filter(selector => !document.querySelector(selector))",
            unmatched,
        )
    page.set_viewport_size({"width": 390, "height": 844})  # streamlit folds its sidebar
    visit("/?langs=de")
    page.get_by_test_id("stExpandSidebarButton").wait_for()
    header_button = '[data-testid="stHeader"] button'
    assert page.locator(header_button).count() > 0
    assert unmatched == [header_button]
