"""What is known by name without opening or importing anything: data sets, models, metrics."""
