"""What a Keras model was compiled with, as options of a training here."""
