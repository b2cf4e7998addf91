"""One head: its values by every method, its roles, what changes without it, and masks without it."""

from headlab.dashboard.pages.head.page import draw_page

draw_page()
