"""Rules about more than one field of a recipe; `all_rules.py` lists them in the order of their messages."""
