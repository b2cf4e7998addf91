"""The papers' analyses, one question each: their results here, or what it would cost to compute them."""

from headlab.dashboard.pages.experiments.page import draw_page

draw_page()
