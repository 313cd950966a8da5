"""Classification and segmentation: losses, scores, and what measures a whole set."""
