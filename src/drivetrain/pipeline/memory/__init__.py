"""The memory that stages and devices will need, predicted without running them."""
