"""What accelerators, processors and runs are doing: read, joined, shown as tables or JSON."""
