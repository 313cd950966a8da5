"""Serves the pages of all runs in a folder while they go on: a list, a page for each, and their changes."""
