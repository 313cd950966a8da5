"""Models cut into stages: their graph, where to cut it, how stages run, what memory they need."""
