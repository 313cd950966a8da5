"""The measurements of a data set that the rules for a recipe look at."""
