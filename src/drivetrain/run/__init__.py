"""One training: from a checked request through the loop to its summary."""
