"""Models cut into stages: trace, cut, schedule tables, runtime."""
