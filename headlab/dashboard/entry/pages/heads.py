"""One map per language on one scale, one head in every language, and what is being computed."""

from headlab.dashboard.pages.heads.page import draw_page

draw_page()
