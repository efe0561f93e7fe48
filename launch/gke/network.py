"""NCCL over the network cards of Google's GPU machines, as in the platform's examples. Imports no JAX.

A3 High has GPUDirect-TCPX, A3 Mega GPUDirect-TCPXO, A3 Ultra and A4 RDMA with the NCCL plugin gIB. The pods get the
machine's network interfaces, the libraries that the installers of the cluster put on its disk, and for TCPX(O) a daemon
as a sidecar. The cluster needs multiple networks and the installer of the plugin:
cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx and
/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom. Sources of the settings:
github.com/GoogleCloudPlatform/container-engine-accelerators at 992db812 (files in `Network.source`),
github.com/AI-Hypercomputer/xpk at 367c8382 (src/xpk/core/workload_decorators) and
github.com/AI-Hypercomputer/gpu-recipes at 2e1fd5ef (src/helm-charts).
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from launch import command
from lmx.errors import InputError

LIBRARIES = '/usr/local/nvidia/lib64'
_IMAGES = 'us-docker.pkg.dev/gce-ai-infra'
_DEVICES = (*(f'nvidia{number}' for number in range(8)), 'nvidiactl', 'nvidia-uvm')


@dataclasses.dataclass(frozen=True)
class Network:
  """Settings of a machine type.

  Attributes:
    title: the machine type and its network, for messages.
    source: the example in container-engine-accelerators.
    networks: network of each interface, by its name.
    volumes: folder of the machine -> folder of the container; '' if only the daemon has it.
    env: variables of the container.
    script: lines of shell before lmx.
    capabilities: Linux capabilities of the container.
    daemon: sidecar container, {} for none.
    devices: devices of the daemon, below /dev.
  """

  title: str
  source: str
  networks: dict[str, str]
  volumes: dict[str, str]
  env: dict[str, str]
  script: tuple[str, ...] = ()
  capabilities: tuple[str, ...] = ()
  daemon: dict[str, Any] = dataclasses.field(default_factory=dict)
  devices: tuple[str, ...] = ()


def _daemon(name: str, image: str, words: list[str], capabilities: list[str], mounts: dict[str, str]) -> dict[str, Any]:
  """Return a sidecar: an init container that runs as long as the pod's containers."""
  return {
    'name': name,
    'image': f'{_IMAGES}/{image}',
    'restartPolicy': 'Always',
    'command': words,
    'env': [{'name': 'LD_LIBRARY_PATH', 'value': LIBRARIES}],
    'securityContext': {'capabilities': {'add': capabilities}},
    'volumeMounts': [{'name': _volume(path), 'mountPath': inside} for path, inside in mounts.items()],
  }


def _volume(path: str) -> str:
  """Return the name of the volume of a folder of the machine."""
  return path.strip('/').replace('/', '-').replace('_', '-')


_SYSTEM = {'/sys': '/hostsysfs', '/proc/sys': '/hostprocsysfs'}
_TCPX = Network(
  'A3 High with GPUDirect-TCPX',
  'gpudirect-tcpx/nccl-test-latest.yaml, nccl-config.yaml',
  {'eth0': 'default', **{f'eth{number}': f'vpc{number}' for number in range(1, 5)}},
  {'/home/kubernetes/bin/nvidia/lib64': LIBRARIES, '/run/tcpx': '/tmp', **dict.fromkeys(_SYSTEM, '')},
  {
    'LD_LIBRARY_PATH': LIBRARIES,
    'NCCL_SOCKET_IFNAME': 'eth0',
    'NCCL_ALGO': 'Ring,Tree',
    'NCCL_PROTO': 'Simple',
    'NCCL_CROSS_NIC': '0',
    'NCCL_NET_GDR_LEVEL': 'PIX',
    'NCCL_P2P_PXN_LEVEL': '0',
    'NCCL_GPUDIRECTTCPX_SOCKET_IFNAME': 'eth1,eth2,eth3,eth4',
    'NCCL_GPUDIRECTTCPX_CTRL_DEV': 'eth0',
    'NCCL_DYNAMIC_CHUNK_SIZE': '524288',
    'NCCL_P2P_NET_CHUNKSIZE': '524288',
    'NCCL_P2P_PCI_CHUNKSIZE': '524288',
    'NCCL_P2P_NVL_CHUNKSIZE': '1048576',
    'NCCL_BUFFSIZE': '4194304',
    'NCCL_NSOCKS_PERTHREAD': '4',
    'NCCL_SOCKET_NTHREADS': '1',
    'NCCL_GPUDIRECTTCPX_TX_BINDINGS': 'eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177',
    'NCCL_GPUDIRECTTCPX_RX_BINDINGS': 'eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191',
    'NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS': '500000',
  },
  capabilities=('IPC_LOCK',),
  daemon=_daemon(
    'tcpx-daemon',
    'gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12',
    [
      '/tcpgpudmarxd/build/app/tcpgpudmarxd',
      *('--gpu_nic_preset', 'a3vm', '--gpu_shmem_type', 'fd', '--uds_path', '/run/tcpx'),
      *('--setup_param', r'\"--verbose 128 2 0 \"'),
    ],
    ['NET_ADMIN'],
    {'/home/kubernetes/bin/nvidia/lib64': LIBRARIES, '/run/tcpx': '/run/tcpx', **_SYSTEM},
  ),
  devices=_DEVICES,
)
_TCPXO = Network(
  'A3 Mega with GPUDirect-TCPXO',
  'gpudirect-tcpxo/nccl-test-latest.yaml, README.md',
  {'eth0': 'default', **{f'eth{number}': f'vpc{number}' for number in range(1, 9)}},
  {
    '/home/kubernetes/bin/nvidia': '/usr/local/nvidia',
    '/dev/aperture_devices': '/dev/aperture_devices',
    **dict.fromkeys(_SYSTEM, ''),
  },
  {
    'LD_LIBRARY_PATH': LIBRARIES,
    'NCCL_LIB_DIR': LIBRARIES,
    'NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY': '/dev/aperture_devices',
  },
  script=(f'source {LIBRARIES}/nccl-env-profile.sh',),
  daemon=_daemon(
    'tcpxo-daemon',
    'gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21',
    [
      *('/bin/sh', '-c'),
      'set -ex\nchmod 755 /fts/entrypoint_rxdm_container.sh\n'
      'exec /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr',
    ],
    ['NET_ADMIN', 'NET_BIND_SERVICE'],
    {'/home/kubernetes/bin/nvidia': '/usr/local/nvidia', **_SYSTEM},
  ),
  devices=(*_DEVICES, 'dmabuf_import_helper'),
)
_GIB = Network(
  'A3 Ultra and A4 with RDMA (gIB)',
  'gpudirect-rdma/nccl-test.yaml, nccl-test-a4.yaml',
  {'eth0': 'default', **{f'eth{number + 2}': f'rdma-{number}' for number in range(8)}},
  {'/home/kubernetes/bin/nvidia': '/usr/local/nvidia', '/home/kubernetes/bin/gib': '/usr/local/gib'},
  {'LD_LIBRARY_PATH': f'/usr/local/gib/lib64:{LIBRARIES}'},
  script=('source /usr/local/gib/scripts/set_nccl_env.sh',),
)
NETWORKS = {'h100-80gb-8': _TCPX, 'h100-mega-80gb-8': _TCPXO, 'h200-141gb-8': _GIB, 'b200-8': _GIB}


def find(accelerator: str, nodes: int, networks: str) -> Network | None:
  """Return the settings of machines that train together, None if NCCL needs none.

  Args:
    accelerator: a name in `launch.accelerators`.
    nodes: number of machines.
    networks: names of the cluster's networks in the order of the interfaces, separated by commas; '' for the names in
      the platform's examples, 'none' for NCCL over the pods' own network.

  Raises:
    InputError: the machines have no such network, or another number of interfaces.
  """
  found = NETWORKS.get(accelerator)
  if networks == 'none' or not networks and (found is None or nodes == 1):
    return None
  if found is None:
    raise InputError(f'--networks: got {networks} for {accelerator}; expected one of {", ".join(NETWORKS)}')
  names = networks.split(',') if networks else [*found.networks.values()]
  if len(names) != len(found.networks):
    raise InputError(f'--networks: got {len(names)} networks; expected {len(found.networks)} for {found.title}')
  return dataclasses.replace(found, networks=dict(zip(found.networks, names, strict=True)))


def script(network: Network) -> list[str]:
  """Return the lines of shell that set NCCL's variables."""
  return [*command.export_lines(network.env), *network.script]


def pod_annotations(network: Network) -> dict[str, str]:
  """Return the annotations of a pod: its interfaces, and the devices of the daemon."""
  rows = [json.dumps({'interfaceName': name, 'network': other}) for name, other in network.networks.items()]
  found = {
    'networking.gke.io/default-interface': 'eth0',
    'networking.gke.io/interfaces': '[\n' + ',\n'.join(rows) + '\n]\n',
  }
  if network.daemon:
    name = f'devices.gke.io/container.{network.daemon["name"]}'
    found[name] = ''.join(f'- path: /dev/{device}\n' for device in network.devices)
  return found


def add_to(pod: dict[str, Any], network: Network) -> None:
  """Add volumes, the daemon and capabilities to the specification of a pod, whose first container trains."""
  (container,) = pod['containers']
  pod['volumes'] += [{'name': _volume(path), 'hostPath': {'path': path}} for path in network.volumes]
  container['volumeMounts'] += [
    {'name': _volume(path), 'mountPath': inside} for path, inside in network.volumes.items() if inside
  ]
  if network.capabilities:
    container['securityContext'] = {'capabilities': {'add': [*network.capabilities]}}
  if network.daemon:
    pod['initContainers'] = [network.daemon]
