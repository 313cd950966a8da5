"""Samples that belong together: found by their names, kept on one side of a split."""
