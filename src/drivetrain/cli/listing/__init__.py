"""What `drivetrain models` prints: its tables, and the models of libraries."""
