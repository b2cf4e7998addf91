"""What heads do: the map by role, each head's roles with intervals, by relation, by language, after pruning."""

from headlab.dashboard.pages.roles.page import draw_page

draw_page()
