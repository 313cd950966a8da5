"""The search for a layout: where to split, on how many devices, in which order, with how much memory."""
