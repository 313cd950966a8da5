"""Forward and backward passes of micro-batches through a whole model, and the gradient they add up to."""
