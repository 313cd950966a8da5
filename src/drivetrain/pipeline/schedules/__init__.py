"""Generators of schedule tables: one technique per file, all behind `build_schedule`."""
