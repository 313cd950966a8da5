"""Chooses a recipe for a user's own data: rules from the fingerprint, the device and a budget of time."""
