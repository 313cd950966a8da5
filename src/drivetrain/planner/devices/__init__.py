"""The devices that a plan is for, on this machine or described in a file, and the links between them."""
