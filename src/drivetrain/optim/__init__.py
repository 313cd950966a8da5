"""Optimisers over one flat vector of weights, and learning-rate schedules."""
