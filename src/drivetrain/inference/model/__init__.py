"""A trained model made ready: restored, folded, compiled, spread over devices, tiled over images."""
