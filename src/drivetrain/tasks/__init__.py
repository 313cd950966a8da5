"""Classification and segmentation: losses, scores, and metrics over a set of samples."""
