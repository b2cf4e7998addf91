"""Gates that learn which heads to keep: over training, at each weight, and compared with other methods."""

from headlab.dashboard.pages.gates.page import draw_page

draw_page()
