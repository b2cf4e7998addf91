"""What does this head look at, in this sentence, and what does the model say without it?"""

from headlab.dashboard.pages.attention.page import draw_page

draw_page()
