"""Pipelines: tracing a model, splitting it into stages, running them, and predicting their memory."""
