"""The state of a training: gathered from ranks, written to checkpoints, restored and shared."""
