"""How samples reach the device: resident or streamed, for training and for evaluation."""
