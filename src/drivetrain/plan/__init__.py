"""The plan of a training before it starts: epochs, host events, stages and memory, as plain values."""
