"""All heads by any two of what is known of them; some can be chosen, switched off and saved."""

from headlab.dashboard.pages.scatter.page import draw_page

draw_page()
