"""headlab's dashboard: `streamlit run app.py`."""

import streamlit as st

# On a fresh server the imports below take seconds, and a page switch may end this run meanwhile and lose the link.
st.session_state.setdefault("_link", {key: st.query_params.get_all(key) for key in st.query_params})

from headlab.ui import presses, shell  # noqa: E402
from headlab.ui.names import PAGES  # noqa: E402

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
    presses.root(pages.url_path, list(PAGES))
    shell.sidebar()
    pages.run()
    presses.drawn()
