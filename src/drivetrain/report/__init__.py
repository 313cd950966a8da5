"""A page for every run: what it holds, how it is drawn, and how it is served while runs go on."""
