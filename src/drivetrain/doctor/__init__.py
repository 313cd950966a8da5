"""Whether a machine is fit for training."""
