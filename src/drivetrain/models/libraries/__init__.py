"""Models of other libraries, chosen by name; one file per library, loaded when it is used."""
