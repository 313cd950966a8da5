"""The model families, one file each, written for a single device."""
