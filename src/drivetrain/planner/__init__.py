"""What fits, how fast it will be and what would be better, before anything starts."""
