"""Times of updates and layers, measured on this machine and kept in the user's cache folder."""
