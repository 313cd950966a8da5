"""What is done with a trained model: measuring, predicting, exporting."""
