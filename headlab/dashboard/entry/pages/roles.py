"""What heads do: roles by head with intervals, by relation, by language, after pruning."""

from headlab.dashboard.pages.roles.page import draw_page

draw_page()
