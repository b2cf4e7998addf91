"""What headlab is, what was found, the maps, and where to go next."""

from headlab.dashboard.pages.overview.page import draw_page

draw_page()
