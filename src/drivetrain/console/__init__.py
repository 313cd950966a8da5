"""What people read on a terminal: progress, tables, figures."""
