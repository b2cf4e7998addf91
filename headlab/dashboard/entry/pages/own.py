"""Can this model be used, and what do my own examples make of its heads?"""

from headlab.dashboard.pages.own.page import draw_page

draw_page()
