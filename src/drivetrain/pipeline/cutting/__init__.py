"""Splitting a model into stages: by layer names, by marks on modules, or automatically."""
