# The image that launch/gke starts: lmx, with the project as its directory.
#
#   docker build --tag=IMAGE .                                     TPUs
#   docker build --tag=IMAGE --build-arg=EXTRAS=cuda12,gcs .       NVIDIA's GPUs
#
# `podman build` takes the same. EXTRAS are those of setup.cfg.
FROM python:3.12-slim-bookworm

ARG EXTRAS=tpu,gcs
# GKE mounts NVIDIA's driver here.
ENV PATH=/usr/local/nvidia/bin:$PATH \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    PYTHONUNBUFFERED=1

WORKDIR /lmx
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --editable ".[${EXTRAS}]"
