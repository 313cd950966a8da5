"""What is known by name without opening or importing anything: tasks, data sets, models, metrics."""
