"""Pictures of one update, predicted or measured: a timeline of each device and its memory."""
