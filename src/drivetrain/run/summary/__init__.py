"""The end of a run: its summary, pictures, and the page that people open."""
