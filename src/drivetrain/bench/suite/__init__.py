"""Many networks measured one by one, their speed-ups, and the figures of both."""
