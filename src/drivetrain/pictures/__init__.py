"""Drawing: overlays, sheets, confusion matrices, pipeline diagrams. No model runs here."""
