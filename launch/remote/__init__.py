"""Runs on machines that are reached by ssh: shared by `launch.tpu_vm` and `launch.gce`."""
