"""Gates that learn which heads to keep, compared with other methods.

They are shown over training and at each weight.
"""

from headlab.dashboard.pages.gates.page import draw_page

draw_page()
