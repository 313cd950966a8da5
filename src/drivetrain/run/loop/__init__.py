"""The loop of a run: executions on the device, host events between them."""
