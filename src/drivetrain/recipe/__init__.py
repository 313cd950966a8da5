"""The recipe: its schema, how YAML and the command line are merged into one, and the rules between fields."""
