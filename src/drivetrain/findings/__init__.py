"""What went wrong in a training, in words: each finding is one sentence with an option that helps."""
