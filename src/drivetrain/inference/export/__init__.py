"""`drivetrain export`: a model with its preprocessing as a file for other programs."""
