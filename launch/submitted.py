"""Earlier name of `launch.slurm.submitit_job`, which the pickled tasks of queued jobs refer to."""

from launch.slurm.submitit_job import Task

__all__ = ['Task']
