"""What `drivetrain data` does: fetch, check and pack data sets."""
