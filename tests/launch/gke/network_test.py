"""NCCL's settings of machines with GPUs."""

from __future__ import annotations

import json
import re

import pytest

from launch import accelerators
from launch.gke import job, network
from lmx.errors import InputError
from tests.launch.gke.manifests import check, container, job_of, run_of


def pod_of(accelerator, **more):
  found = check(job.manifest_yaml(job_of(accelerator=accelerator, **more), run_of()))
  return found, found['spec']['replicatedJobs'][0]['template']['spec']['template']


@pytest.mark.parametrize('accelerator', network.NETWORKS)
def test_pods_have_what_the_settings_name(accelerator):
  found, pod = pod_of(accelerator, nodes=2)
  settings = network.NETWORKS[accelerator]
  volumes = {volume['name'] for volume in pod['spec']['volumes']}
  everyone = [*pod['spec']['containers'], *pod['spec'].get('initContainers', [])]
  mounted = [{mount['name'] for mount in each['volumeMounts']} for each in everyone]
  assert set.union(*mounted) == volumes
  notes = pod['metadata']['annotations']
  interfaces = [row['interfaceName'] for row in json.loads(notes['networking.gke.io/interfaces'])]
  assert interfaces == [*settings.networks] and notes['networking.gke.io/default-interface'] == interfaces[0]
  named = re.findall(r'eth\d+', ' '.join(settings.env.values()))
  assert {*named} <= {*interfaces}
  assert all(f'devices.gke.io/container.{each["name"]}' in notes for each in everyone[1:])
  assert all(each['restartPolicy'] == 'Always' for each in everyone[1:])  # else lmx would not begin
  text = container(found)['command'][2]
  assert text.index('LD_LIBRARY_PATH') < text.index('preflight') and settings.source


def test_one_machine_and_others_need_no_settings():
  for accelerator, nodes in (('h100-80gb-8', 1), ('h100-80gb-4', 2), ('l4-8', 2)):
    assert 'metadata' not in pod_of(accelerator, nodes=nodes)[1]
  assert 'metadata' not in pod_of('b200-8', nodes=2, networks='none')[1]
  whole = {name for name in accelerators.names('gpu') if accelerators.GPUS[name.rpartition('-')[0]][1] == (8,)}
  assert whole < {*network.NETWORKS}


def test_networks_of_the_cluster():
  names = ['default', 'extra', *(f'rdma-{number}' for number in range(7))]
  notes = pod_of('h200-141gb-8', nodes=2, networks=','.join(names))[1]['metadata']['annotations']
  assert [row['network'] for row in json.loads(notes['networking.gke.io/interfaces'])] == names
  with pytest.raises(InputError, match='--networks: got 2 networks; expected 9 for A3 Ultra'):
    job_of(accelerator='h200-141gb-8', nodes=2, networks='a,b')
  with pytest.raises(InputError, match='--networks: got a,b for l4-8; expected one of h100-80gb-8'):
    job_of(accelerator='l4-8', nodes=2, networks='a,b')
