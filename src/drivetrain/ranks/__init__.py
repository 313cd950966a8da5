"""Processes that train together: launching, joining, adding up, losing and ending them."""
