"""Where a model is cut: by name, by mark or automatically, and the stages that result."""
