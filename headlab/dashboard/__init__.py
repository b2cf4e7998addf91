"""The dashboard: frame, widgets, panels, and a folder a page.

The only part of headlab that imports streamlit.
"""
