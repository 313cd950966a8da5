"""`drivetrain doctor`: checks whether this machine is fit for training."""
