"""Stand-ins for libraries of models; the folder goes on the path as it is."""
