"""Output for people: messages, progress bars, tables and formatted numbers."""
