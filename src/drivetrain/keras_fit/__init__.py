"""`fit`, `evaluate` and `predict` of Keras models inside `drivetrain.keras.scope`."""
