"""Code shared by the pages: the only part of headlab that imports streamlit."""
