"""Whether a run compiles: measured, chosen and kept."""
