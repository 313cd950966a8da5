"""`drivetrain evaluate`: metrics of a checkpoint on a split."""
