"""The parts of a run's time in words."""

__all__ = ["PART_WORDS"]

PART_WORDS = {
    "step": "training steps",
    "data": "waiting for data",
    "transfer": "transfer to the device",
    "checkpoint": "checkpoints",
    "pictures": "drawing pictures",
    "probing": "comparing compiled and uncompiled updates",
}
"""Parts by the names that a reader of the terminal knows; the keys are those of metrics.jsonl."""
