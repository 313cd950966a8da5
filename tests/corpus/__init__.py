"""Small modules of users' kinds, one idea each, and how each fares in every layout."""
