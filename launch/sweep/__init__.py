"""Hyperparameter search over an experiment: `python -m launch.sweep`."""
