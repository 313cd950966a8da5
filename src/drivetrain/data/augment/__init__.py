"""Augmentations as batched tensor operations, one technique or family per file."""
