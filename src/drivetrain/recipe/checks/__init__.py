"""Rules about more than one field of a recipe, one subject per file."""
