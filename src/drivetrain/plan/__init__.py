"""What a recipe becomes before anything starts: epochs, host events, stages, memory, as plain values."""
