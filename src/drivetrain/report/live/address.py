"""Where the server listens unless it is told otherwise."""

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT"]

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8421
