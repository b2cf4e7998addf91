"""The papers' analyses: their results here, or the cost of computing them."""

from headlab.dashboard.pages.experiments.page import draw_page

draw_page()
