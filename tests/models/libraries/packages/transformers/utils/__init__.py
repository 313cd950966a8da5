"""What the library needs itself."""
