"""Layers that replace those of a model for training: dropout, batch norms, precisions, watched values."""
