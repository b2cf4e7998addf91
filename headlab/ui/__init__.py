"""What the pages share: the only part of headlab that imports streamlit."""
