"""ResNets of torchvision: names and shapes, what is not read, and errors that name the tensor."""

from __future__ import annotations

import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file

from lmx.errors import InputError
from lmx.interop import torch_file, torchvision
from lmx.layers import normalization, resnet

SMALL = resnet.Config(block='basic', blocks=(1, 2), widths=(3, 4), stem_width=3, stride=8)
DEEP = resnet.Config(block='bottleneck', blocks=(1, 1), widths=(2, 3), stem_width=2, stem='deep', stride=8)


def shapes_of(cfg):
  shapes = jax.eval_shape(lambda: resnet.init(cfg, jax.random.key(0)))
  return {'/'.join(path): x.shape for path, x in flatten_dict(shapes).items()}


def norm(name, width):
  return {f'{name}.{part}': (width,) for part in ('weight', 'bias', 'running_mean', 'running_var')} | {
    f'{name}.num_batches_tracked': ()
  }


# Names and shapes as torchvision (OIYX) has them.
FILES = {
  'small': {
    'conv1.weight': (3, 3, 7, 7),
    **norm('bn1', 3),
    'layer1.0.conv1.weight': (3, 3, 3, 3),
    **norm('layer1.0.bn1', 3),
    'layer1.0.conv2.weight': (3, 3, 3, 3),
    **norm('layer1.0.bn2', 3),
    'layer2.0.conv1.weight': (4, 3, 3, 3),
    **norm('layer2.0.bn1', 4),
    'layer2.0.conv2.weight': (4, 4, 3, 3),
    **norm('layer2.0.bn2', 4),
    'layer2.0.downsample.0.weight': (4, 3, 1, 1),
    **norm('layer2.0.downsample.1', 4),
    'layer2.1.conv1.weight': (4, 4, 3, 3),
    **norm('layer2.1.bn1', 4),
    'layer2.1.conv2.weight': (4, 4, 3, 3),
    **norm('layer2.1.bn2', 4),
    'fc.weight': (10, 4),
    'fc.bias': (10,),
  },
  'deep': {
    'conv1.0.weight': (2, 3, 3, 3),
    **norm('conv1.1', 2),
    'conv1.3.weight': (2, 2, 3, 3),
    **norm('conv1.4', 2),
    'conv1.6.weight': (4, 2, 3, 3),
    **norm('bn1', 4),
    'layer1.0.conv1.weight': (2, 4, 1, 1),
    **norm('layer1.0.bn1', 2),
    'layer1.0.conv2.weight': (2, 2, 3, 3),
    **norm('layer1.0.bn2', 2),
    'layer1.0.conv3.weight': (8, 2, 1, 1),
    **norm('layer1.0.bn3', 8),
    'layer1.0.downsample.0.weight': (8, 4, 1, 1),
    **norm('layer1.0.downsample.1', 8),
    'layer2.0.conv1.weight': (3, 8, 1, 1),
    **norm('layer2.0.bn1', 3),
    'layer2.0.conv2.weight': (3, 3, 3, 3),
    **norm('layer2.0.bn2', 3),
    'layer2.0.conv3.weight': (12, 3, 1, 1),
    **norm('layer2.0.bn3', 12),
    'layer2.0.downsample.0.weight': (12, 8, 1, 1),
    **norm('layer2.0.downsample.1', 12),
  },
}
CONFIGS = {'small': SMALL, 'deep': DEEP}


def tensors(name='small'):
  rng = np.random.default_rng(0)
  draw = lambda shape: rng.standard_normal(shape).astype(np.float32) if shape else np.array(5)
  drawn = {key: draw(shape) for key, shape in FILES[name].items()}
  return {key: np.abs(x) if key.endswith('running_var') else x for key, x in drawn.items()}


@pytest.mark.parametrize('name', list(FILES))
def test_every_leaf_is_read_from_the_tensor_of_its_name(name, tmp_path):
  content, path = tensors(name), tmp_path / 'resnet.safetensors'
  save_file(content, path)
  found = torchvision.read(str(path), shapes_of(CONFIGS[name]))
  assert {leaf: x.shape for leaf, x in found.leaves.items()} == shapes_of(CONFIGS[name])
  assert all(x.dtype == np.float32 for x in found.leaves.values())
  unused = [key for key in content if key.startswith('fc.') or key.endswith('num_batches_tracked')]
  assert sorted(found.unused) == sorted(unused)
  read = {x.tobytes() for x in found.leaves.values()}
  expected = {
    np.ascontiguousarray(np.moveaxis(x, (0, 1), (3, 2)) if x.ndim == 4 else x).tobytes()
    for key, x in content.items()
    if key not in unused
  }
  assert read == expected


def test_capture_positions_select_some_outputs():
  shapes = shapes_of(SMALL)
  for leaf, name in {
    'stem/conv_1/kernel': 'conv1.weight',
    'stem/conv_1/norm/mean': 'bn1.running_mean',
    'layer_01/block_01/conv_2/norm/variance': 'layer2.1.bn2.running_var',
    'layer_01/block_00/shortcut/kernel': 'layer2.0.downsample.0.weight',
    'layer_01/block_00/shortcut/norm/scale': 'layer2.0.downsample.1.weight',
  }.items():
    assert torchvision._name(leaf, shapes) == name
  assert torchvision._name('stem/conv_2/norm/bias', shapes_of(DEEP)) == 'conv1.4.bias'


@pytest.mark.parametrize('wrap', [lambda x: x, lambda x: {'state_dict': {f'module.{k}': v for k, v in x.items()}}])
def test_files_of_torch_are_read_without_it(wrap, tmp_path):
  save_file(tensors(), tmp_path / 'resnet.safetensors')
  torch_file.write(tmp_path / 'resnet.pth', wrap(tensors()))
  one, other = (torchvision.read(str(tmp_path / f'resnet.{end}'), shapes_of(SMALL)) for end in ('safetensors', 'pth'))
  for leaf, x in one.leaves.items():
    np.testing.assert_array_equal(x, other.leaves[leaf])


def test_half_precision_is_read_as_float32(tmp_path):
  save_file({key: x.astype(np.float16) if x.ndim else x for key, x in tensors().items()}, tmp_path / 'a.safetensors')
  found = torchvision.read(str(tmp_path / 'a.safetensors'), shapes_of(SMALL))
  assert {x.dtype for x in found.leaves.values()} == {np.dtype(np.float32)}


def _without(name):
  return lambda content: {key: x for key, x in content.items() if key != name}


def _with(name, x):
  return lambda content: content | {name: np.asarray(x, np.float32)}


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (_without('layer2.1.bn2.running_var'), r'got no tensor "layer2.1.bn2.running_var"'),
    (_with('layer3.0.conv1.weight', np.zeros((1, 1, 1, 1))), r'got tensor "layer3.0.conv1.weight"'),
    (_with('conv1.weight', np.zeros((4, 3, 7, 7))), r'"conv1.weight": got shape \(4, 3, 7, 7\)'),
    (_with('bn1.bias', np.zeros((4,))), r'"bn1.bias": got shape \(4,\)'),
    (_with('bn1.bias', np.zeros((3, 1))), r'"bn1.bias": got shape \(3, 1\)'),
    (_with('conv1.weight', np.zeros((3, 3))), r'"conv1.weight": got shape \(3, 3\)'),
    (_with('bn1.running_mean', [np.nan, 0, 0]), r'"bn1.running_mean": got NaN or infinity'),
    (_with('bn1.running_var', [1, -0.5, 0]), r'"bn1.running_var": got a variance of -0.5'),
  ],
)
def test_errors_name_the_tensor(spoil, message, tmp_path):
  save_file(spoil(tensors()), tmp_path / 'a.safetensors')
  with pytest.raises(InputError, match=message):
    torchvision.read(str(tmp_path / 'a.safetensors'), shapes_of(SMALL))


def test_non_backbone_files_are_rejected(tmp_path):
  for name, content in {'a.bin': b'', 'a.safetensors': b'\0' * 20, 'a.pth': b'no file'}.items():
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
      torchvision.read(str(tmp_path / name), shapes_of(SMALL))
  torch_file.write(tmp_path / 'b.pth', {'epoch': 3})
  with pytest.raises(InputError, match='got no tensors by name'):
    torchvision.read(str(tmp_path / 'b.pth'), shapes_of(SMALL))


PROGRAM = """
import numpy as np, torch, torchvision
torch.manual_seed(0)
for name, dilated in (('resnet18', None), ('resnet50', [False, True, True])):
  net = getattr(torchvision.models, name)(replace_stride_with_dilation=dilated).eval()
  for key, x in net.state_dict().items():
    if key.endswith(('running_mean', 'running_var')):
      x.copy_(torch.rand_like(x) * 0.2 + (0.9 if key.endswith('var') else -0.1))
  torch.save(net.state_dict(), name + '.pth')
  images = torch.randn(1, 3, 65, 80)
  with torch.no_grad():
    x = net.maxpool(net.relu(net.bn1(net.conv1(images))))
    for layer in (net.layer1, net.layer2, net.layer3, net.layer4):
      x = layer(x)
  np.savez(name + '.npz', images=images.numpy().transpose(0, 2, 3, 1), output=x.numpy().transpose(0, 2, 3, 1))
"""


@pytest.mark.peer
@pytest.mark.slow
def test_outputs_match_torchvision(tmp_path):
  python = os.environ.get('LMX_TORCHVISION', '')
  if not python:
    pytest.skip('set LMX_TORCHVISION to an interpreter with torchvision')
  subprocess.run([python, '-c', PROGRAM], cwd=tmp_path, check=True, timeout=300)
  for name, cfg in (
    ('resnet18', resnet.Config(block='basic', blocks=(2, 2, 2, 2), stride=32)),
    ('resnet50', resnet.Config(stride=8)),
  ):
    found = torchvision.read(str(tmp_path / f'{name}.pth'), shapes_of(cfg))
    params = unflatten_dict({tuple(leaf.split('/')): jnp.asarray(x) for leaf, x in found.leaves.items()})
    expected = np.load(tmp_path / f'{name}.npz')
    rows = normalization.Rows(jnp.ones(1), False)
    outputs, _ = jax.jit(lambda params, x, cfg=cfg, rows=rows: resnet.apply(cfg, params, x, rows))(
      params, expected['images']
    )
    scale = np.abs(expected['output']).max()
    np.testing.assert_allclose(outputs[-1] / scale, expected['output'] / scale, atol=2e-5)
