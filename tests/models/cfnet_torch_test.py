"""The backbone against torchvision's, and the module of co-occurrent features against one in PyTorch.

LMX_TORCHVISION names a Python that has torch and torchvision.
"""

from __future__ import annotations

import math
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from lmx.layers import cooccurrence, normalization, resnet
from tests import drawn

pytestmark = pytest.mark.peer

RESNET = """
import sys, numpy as np, torch, torchvision
given = {k: torch.tensor(v) for k, v in np.load('given.npz').items()}
images = given.pop('images').permute(0, 3, 1, 2)
net = getattr(torchvision.models, sys.argv[1])(replace_stride_with_dilation=[False, True, True])
print(sum(p.numel() for p in net.parameters()), sum(p.numel() for p in net.fc.parameters()))
state = {k: v for k, v in net.state_dict().items() if k.startswith('fc.') or k.endswith('num_batches_tracked')}
net.load_state_dict({**state, **given})
def run():
  x = net.maxpool(net.relu(net.bn1(net.conv1(images))))
  for i, stage in enumerate((net.layer1, net.layer2, net.layer3, net.layer4)):
    x = stage(x)
    yield f'{name}_{i}', x.detach().permute(0, 2, 3, 1).numpy()
found, name = {}, 'evaluated'
net.eval()
found |= dict(run())
name = 'trained'
net.train()
found |= dict(run())
found |= {k: v.numpy() for k, v in net.state_dict().items() if 'running' in k}
np.savez('found.npz', **found)
"""

MODULE = """
import sys, numpy as np, torch
from torch import nn
torch.manual_seed(0)

class Module(nn.Module):
  def __init__(self, width, heads, mixtures, pooled):
    super().__init__()
    self.heads, self.mixtures = heads, mixtures
    self.key_width = width // heads * mixtures
    self.query = nn.Conv2d(width, heads * self.key_width, 1)
    self.value = nn.Conv2d(width, width, 1)
    self.out = nn.Conv2d(width, width, 1, bias=False)
    self.norm = nn.BatchNorm2d(width)
    self.average = nn.AvgPool2d(3, 2, 1, count_include_pad=False) if pooled else nn.Identity()
    if mixtures > 1:
      self.prior = nn.Parameter(torch.zeros(mixtures, self.key_width))

  def forward(self, x):
    rows, _, height, width = x.shape
    heads = lambda y: y.reshape(rows, self.heads, -1, y.shape[2] * y.shape[3])
    small = self.average(x)
    query, key, value = heads(self.query(x)), heads(self.query(small)), heads(self.value(small))
    total = 0
    for i, (q, k) in enumerate(zip(query.chunk(self.mixtures, 2), key.chunk(self.mixtures, 2))):
      weights = torch.softmax(torch.einsum('bhkt,bhks->bhts', q, k) / self.key_width**0.5, -1)
      if self.mixtures > 1:
        share = torch.softmax(torch.einsum('ik,bhk->bhi', self.prior, query.mean(-1)), -1)[..., i]
        weights = weights * share[..., None, None]
      total = total + weights
    context = torch.einsum('bhts,bhks->bhkt', total, value)
    return x + self.norm(self.out(context.reshape(rows, -1, height, width)))

width, heads, mixtures, pooled = map(int, sys.argv[1:])
given = {k: torch.tensor(v) for k, v in np.load('given.npz').items()}
module = Module(width, heads, mixtures, pooled)
print(sum(p.numel() for p in module.parameters()))
x, factor = given.pop('x').permute(0, 3, 1, 2).requires_grad_(), given.pop('factor').permute(0, 3, 1, 2)
module.load_state_dict({**given, 'norm.num_batches_tracked': torch.tensor(0)})
found = {}
for name in ('evaluated', 'trained'):
  module.train(name == 'trained')
  module.zero_grad()
  x.grad = None
  y = module(x)
  (y * factor).sum().backward()
  found |= {f'{name}/{k}': v.grad.numpy() for k, v in module.named_parameters()}
  found |= {f'{name}/y': y.detach().permute(0, 2, 3, 1).numpy(), f'{name}/x': x.grad.permute(0, 2, 3, 1).numpy()}
found |= {f'trained/{k}': v.numpy() for k, v in module.state_dict().items() if 'running' in k}
np.savez('found.npz', **found)
"""


def run(script, folder, given, *args):
  """(arrays that a script writes, the numbers that it prints)."""
  python = os.environ.get('LMX_TORCHVISION', '')
  if not python:
    pytest.skip('set LMX_TORCHVISION to an interpreter with torch and torchvision')
  np.savez(folder / 'given.npz', **given)
  done = subprocess.run(
    [python, '-c', script, *map(str, args)], cwd=folder, check=True, capture_output=True, text=True, timeout=300
  )
  return dict(np.load(folder / 'found.npz')), [int(number) for number in done.stdout.split()]


def by_inputs(shape):
  return (1.5 / math.prod(shape[:-1])) ** 0.5 if shape[1:] else 0.2


NORM = {'scale': 'weight', 'bias': 'bias', 'mean': 'running_mean', 'variance': 'running_var'}


def torch_name(path):
  """Of a leaf of a backbone with a 7x7 stem, in torchvision."""
  *where, unit, kind = path if path[-1] == 'kernel' else (*path[:-2], f'norm/{path[-1]}')
  part, norm = ('conv', None) if kind == 'kernel' else ('bn', kind.removeprefix('norm/'))
  leaf = 'weight' if norm is None else NORM[norm]
  if where[0] == 'stem':
    return f'{part}1.{leaf}'
  stage, block = int(where[0].removeprefix('layer_')) + 1, int(where[1].removeprefix('block_'))
  number = unit.removeprefix('conv_')
  name = f'downsample.{int(part == "bn")}' if unit == 'shortcut' else f'{part}{number}'
  return f'layer{stage}.{block}.{name}.{leaf}'


@pytest.mark.parametrize(
  ('name', 'changes', 'count'),
  [
    ('resnet50', {}, 25_557_032),
    ('resnet101', {'blocks': (3, 4, 23, 3)}, 44_549_160),
  ],
)
def test_backbone_is_torchvisions(name, changes, count, tmp_path):
  cfg = resnet.Config(**changes)
  params = drawn.params(resnet.init, cfg, std=by_inputs)
  images_BYXC = np.random.default_rng(0).standard_normal((2, 65, 48, 3)).astype(np.float32)
  flat = flatten_dict(params)
  given = {torch_name(path): x.transpose(3, 2, 0, 1) if x.ndim == 4 else x for path, x in flat.items()}
  found, counts = run(RESNET, tmp_path, {**given, 'images': images_BYXC}, name)
  sizes = [x.size for path, x in flat.items() if path[-1] not in ('mean', 'variance')]
  assert counts[0] == count == sum(sizes) + counts[1]
  for mode in ('evaluated', 'trained'):
    rows = normalization.Rows(np.ones(2, np.float32), mode == 'trained')
    outputs, statistics = jax.jit(lambda p, x, rows=rows: resnet.apply(cfg, p, x, rows))(params, images_BYXC)
    # With statistics of a small batch every layer multiplies the rounding of those before it.
    for i, x_BYXD in enumerate(outputs[1:] if mode == 'evaluated' else outputs[1:3]):
      np.testing.assert_allclose(x_BYXD, found[f'{mode}_{i}'], rtol=1e-4, atol=1e-5 * np.abs(x_BYXD).max())
  for path, x in flatten_dict(statistics).items():
    if path[0] in ('stem', 'layer_00', 'layer_01'):
      np.testing.assert_allclose(x, found[torch_name(path)], rtol=1e-4, atol=1e-5, err_msg=str(path))


LEAVES = {
  ('query', 'kernel'): 'query.weight',
  ('query', 'bias'): 'query.bias',
  ('value', 'kernel'): 'value.weight',
  ('value', 'bias'): 'value.bias',
  ('out', 'kernel'): 'out.weight',
  ('prior',): 'prior',
  **{('out', 'norm', leaf): f'norm.{name}' for leaf, name in NORM.items()},
}


def as_convolution(path, x, width):
  """A leaf of the module as PyTorch has it: kernels are (outputs, inputs, 1, 1), and axes of heads are one."""
  if path[-1] == 'kernel':
    return np.reshape(x, (-1, width) if path[0] == 'out' else (width, -1)).T[..., None, None]
  return np.reshape(x, (len(x), -1)) if path == ('prior',) else np.reshape(x, -1)


@pytest.mark.parametrize(('m', 'pooled', 'count'), [(1, True, 788_480), (4, True, 1_577_472), (2, False, 0)])
def test_module_is_one_in_pytorch(m, pooled, count, tmp_path):
  width, heads = (512, 8) if count else (24, 3)
  cfg = normalization.Config()
  params = drawn.params(cooccurrence.init, cfg, width, heads, m, std=lambda shape: 0.05 if shape[1:] else 0.2)
  rng = np.random.default_rng(1)
  x_BYXD, factor_BYXD = (rng.standard_normal((2, 10, 9, width)).astype(np.float32) for _ in range(2))
  given = {LEAVES[path]: as_convolution(path, x, width) for path, x in flatten_dict(params).items()}
  args = width, heads, m, int(pooled)
  found, counts = run(MODULE, tmp_path, {**given, 'x': x_BYXD, 'factor': factor_BYXD}, *args)
  assert not count or counts == [count]
  for mode in ('evaluated', 'trained'):
    rows = normalization.Rows(np.ones(2, np.float32), mode == 'trained')

    def loss(params, x_BYXD, rows=rows):
      y_BYXD, statistics = cooccurrence.apply(cfg, params, x_BYXD, rows, pooled=pooled)
      return jnp.sum(y_BYXD * factor_BYXD), (y_BYXD, statistics)

    (_, (y_BYXD, statistics)), gradients = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x_BYXD)
    np.testing.assert_allclose(y_BYXD, found[f'{mode}/y'], rtol=1e-4, atol=1e-5 * np.abs(y_BYXD).max())
    np.testing.assert_allclose(gradients[1], found[f'{mode}/x'], rtol=1e-4, atol=1e-4)
    trained = {path: x for path, x in flatten_dict(gradients[0]).items() if path[-1] not in ('mean', 'variance')}
    largest = max(np.abs(x).max() for x in trained.values())
    for path, x in trained.items():
      wanted, x = found[f'{mode}/{LEAVES[path]}'], as_convolution(path, x, width)
      np.testing.assert_allclose(x, wanted, rtol=1e-4, atol=1e-5 * largest, err_msg=str(path))
  for path, x in flatten_dict(statistics).items():
    np.testing.assert_allclose(x, found[f'trained/{LEAVES[path]}'], rtol=1e-4, atol=1e-5)
