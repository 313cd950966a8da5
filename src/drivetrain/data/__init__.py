"""From a data set to micro-batches: sources, splits, order, preprocessing."""
