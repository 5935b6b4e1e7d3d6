"""The pictures of the documentation, drawn again from the data."""
