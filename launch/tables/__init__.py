"""Reproduction of papers' tables: `python -m launch.tables`."""
