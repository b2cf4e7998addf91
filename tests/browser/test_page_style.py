"""The style of the pages: what its rules are about is in Streamlit's page as they say, one part inside another."""

from __future__ import annotations

import re
from pathlib import Path

from support.browsing import link_with_model

STYLE = Path(__file__).parents[2] / "headlab" / "dashboard" / "static" / "page.css"
# A figure is provisional, and shown so by a rule, for a moment only; then it is final, and else drawn the same way.
PROVISIONAL = '[class*="st-key-provisional-"]'
FIGURE = f':is({PROVISIONAL}, [class*="st-key-final-"])'
# Of each page, what is drawn last of that which a rule is about.
PAGES = {
    "/?langs=de&langs=th": ".st-key-findings [data-testid='stPageLink'] p",
    "/heads?langs=de&langs=th": "[class*='st-key-maps-'] > *",
    "/prune?langs=de": f"{FIGURE} [data-testid='stMetricValue']",
    "/jobs": ".st-key-new-job [class*='st-key-forecast-']",
}


def selectors() -> list[str]:
    """Selectors of the style's rules, one by one."""
    text = re.sub(r"/\*.*?\*/", "", STYLE.read_text(encoding="utf-8"), flags=re.DOTALL)
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", re.sub(r"@media[^{]*\{", "", text))
    return sorted(
        {
            selector.strip().replace(PROVISIONAL, FIGURE)
            for rule in rules
            for selector in rule.strip(" }\n").split(",")
        }
    )


def test_each_rule_finds_its_part_on_some_page(visit, page, light_model):
    without_part = selectors()
    assert len(without_part) > 15
    for address, last_part in PAGES.items():
        visit(link_with_model(address, light_model) if "prune" in address else address)
        page.locator(last_part).first.wait_for()
        without_part = page.evaluate(
            "selectors => selectors.filter(selector => !document.querySelector(selector))",
            without_part,
        )
    assert without_part == []
