"""headlab's dashboard: `streamlit run app.py`.

The server imports this file, and every session runs it.
"""

from streamlit.starlette import App

if __name__ == "__main__":
    from headlab.dashboard.session import run_session

    run_session()
else:
    from headlab.dashboard.server.door import middleware
    from headlab.dashboard.server.ending import lifespan

    app = App(__file__, lifespan=lifespan, middleware=middleware(__file__))
