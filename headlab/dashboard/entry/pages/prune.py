"""What does the model lose, or gain, when these heads are switched off?"""

from headlab.dashboard.pages.prune.page import draw_page

draw_page()
