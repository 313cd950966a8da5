"""`drivetrain verify`: compares every layout with one process and prints an equivalence certificate."""
