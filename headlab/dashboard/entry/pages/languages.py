"""Which languages rank the heads alike, which heads they share, and where they differ."""

from headlab.dashboard.pages.languages.page import draw_page

draw_page()
