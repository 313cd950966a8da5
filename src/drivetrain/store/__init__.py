"""The run directory: what files a run leaves, how they are written, found and read again."""
