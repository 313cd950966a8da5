"""Turns a Keras model on the torch backend into a torch module, and gives trained weights back to it."""
