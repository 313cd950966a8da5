"""Random draws of a model as functions of seed, update, sample or micro-batch, and place in the model."""
