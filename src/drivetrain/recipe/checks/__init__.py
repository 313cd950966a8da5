"""Rules that involve more than one field of a recipe; `all_rules.py` runs them, first error first."""
