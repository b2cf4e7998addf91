"""headlab's dashboard: `streamlit run app.py`."""

import streamlit as st

from headlab.ui import shell
from headlab.ui.links import PAGES

st.set_page_config(page_title="headlab", page_icon=shell.icon(), layout="wide")
shell.warm_up()

pages = st.navigation(
    [
        st.Page(f"pages/{name}.py", title=title, icon=icon, default=name == "overview")
        for name, (title, icon) in PAGES.items()
    ],
    position="top",
)
with shell.guarded():
    shell.sidebar()
    pages.run()
