"""Which heads do two masks share, and where do they differ?"""

from headlab.dashboard.pages.masks.page import draw_page

draw_page()
