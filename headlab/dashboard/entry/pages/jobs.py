"""Running, waiting and ended jobs, and the form for a new one."""

from headlab.dashboard.pages.jobs.page import draw_page

draw_page()
