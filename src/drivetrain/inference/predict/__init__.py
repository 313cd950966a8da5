"""`drivetrain predict`: class probabilities or masks of image files."""
