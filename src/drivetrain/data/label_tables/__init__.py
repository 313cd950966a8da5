"""Tables that name images and their classes, one row per image."""
