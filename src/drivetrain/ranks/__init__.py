"""The ranks of a training: launching processes, forming groups, all-reduces, failures and timeouts."""
