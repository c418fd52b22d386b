"""Bridges: what crosses from site to site, in order and once."""
