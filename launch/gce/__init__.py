"""Launcher of TPU instances of Compute Engine: `python -m launch.gce`."""
