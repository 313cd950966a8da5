"""The published networks for photographs, one file a family."""
