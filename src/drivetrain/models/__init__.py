"""Models from outside: building, editing, freezing, taking over weights, summing up."""
