"""The models, by what they do."""
