"""Searched-for examples are the same in every run, so that a check that is green stays green."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
