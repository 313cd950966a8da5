"""The network families, single-device code only, one file each."""
