"""The command line: one thin module per command, options generated from the schema."""
