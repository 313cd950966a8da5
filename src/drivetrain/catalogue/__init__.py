"""Catalogue of tasks, data sets, models and metrics by name; needs no files and no torch."""
