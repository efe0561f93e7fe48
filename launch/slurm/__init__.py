"""Launcher of Slurm clusters: `python -m launch.slurm`."""
