"""The equivalence certificate: every layout held against one process, with a negative control."""
