"""Charts: what each shows, described once, and drawn as static SVG and PNG files.

`headlab.plots` draws the same descriptions on pages.
"""
