"""Helpers for all other folders: errors, wording, randomness, atomic files."""
