"""Reproduction of the tables of papers: `python -m launch.tables`."""
