"""The data sets that can be opened by name, and data given in Python."""
