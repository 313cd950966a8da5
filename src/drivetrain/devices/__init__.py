"""Devices and what they need: choosing one, 16-bit types that work, compiled code, backend settings."""
