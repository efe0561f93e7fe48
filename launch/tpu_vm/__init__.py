"""Launcher of Cloud TPU VMs: `python -m launch.tpu_vm`."""
