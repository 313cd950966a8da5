"""How fast a recipe trains, a model infers and a feed delivers on this machine."""
