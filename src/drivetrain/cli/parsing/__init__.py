"""Values on the command line: switches, and sentences about values that cannot be used."""
