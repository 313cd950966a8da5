"""What every other folder may use: errors, wording, randomness, files that are never half written."""
