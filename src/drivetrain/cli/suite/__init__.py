"""`drivetrain bench suite`, and `bench compare` for its results."""
