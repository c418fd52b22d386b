"""Headwater: stream processing for the space between sensors and cloud."""

__version__ = "0.1.0"
