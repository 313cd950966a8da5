"""The recipe: its schema, how YAML and the command line become one, and every rule between its fields."""
