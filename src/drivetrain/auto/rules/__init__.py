"""The rules that turn a fingerprint and a device into options, each with its reason."""
