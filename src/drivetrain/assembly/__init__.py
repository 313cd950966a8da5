"""Where recipe, data, model and devices are put together into a training program."""
