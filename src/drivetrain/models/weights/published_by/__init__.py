"""How each library publishes the weights of its models; one file per library."""
