"""What happens when a run needs more memory than its device has."""
