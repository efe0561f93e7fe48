"""Launcher of Google Kubernetes Engine: `python -m launch.gke`."""
