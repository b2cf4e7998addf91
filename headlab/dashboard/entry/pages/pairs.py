"""Which heads stand in for each other or need each other, and sets of them removed."""

from headlab.dashboard.pages.pairs.page import draw_page

draw_page()
