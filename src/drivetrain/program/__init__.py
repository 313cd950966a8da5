"""The training program of one rank: weight updates between two host events, captured where possible."""
