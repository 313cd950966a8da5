"""Changes of a recipe that make it fit its device, and what they cost."""
