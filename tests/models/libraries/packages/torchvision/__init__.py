"""A stand-in for torchvision 0.26: one classifier, one segmentation model, one detector."""
