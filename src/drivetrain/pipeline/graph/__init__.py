"""A model as a graph of named layers, with the size and cost of every value."""
