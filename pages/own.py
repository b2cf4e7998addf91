"""Can this model be used, and what do my own examples make of its heads?"""

from headlab.ui import own_page
from headlab.ui.shell import page

with page("own") as choice:
    own_page.model_part(choice)
    own_page.data_part(choice)
