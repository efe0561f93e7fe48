"""Pictures of a memory, one for each length, with and without heads; and of segmented images."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from lmx.data import pipeline
from lmx.errors import InputError
from lmx.models import ntm, registry
from lmx.reporting import plots


def made():
  cfg = pipeline.Config(
    dataset='generated',
    length=3,
    eval_batch_size=6,
    batching={'name': 'algorithmic', 'bits': 4, 'eval_sequences': 5, 'test_lengths': (5, 2)},
  )
  return pipeline.batches(cfg, pipeline.load(cfg), 'test', 0, train=False)


def test_one_episode_of_each_length_shortest_first():
  found = plots.episodes(made(), 9)
  assert [int(row['size_B'][0]) for row in found] == [2, 5] and all(len(v) == 1 for v in found[0].values())
  assert len(plots.episodes(made(), 1)) == 1


@pytest.mark.parametrize('H', [0, 2])
def test_plot_is_written(tmp_path, H):
  from matplotlib import image

  cfg = registry.config('ntm', 'tiny', H=H)
  params = jax.jit(ntm.init, static_argnums=0)(cfg, jax.random.key(0))
  trace, sizes = jax.jit(lambda params, batch: ntm.trace(cfg, params, batch)), []
  for episode in plots.episodes(made(), 2):
    path = tmp_path / f'{int(episode["size_B"][0])}.png'
    plots.memory(path, episode, jax.device_get(trace(params, episode)))
    shown = image.imread(path)
    assert np.unique(shown[..., :3]).size > 2
    sizes.append(shown.shape)
  assert sizes[1][1] > sizes[0][1] and sizes[0][0] == sizes[1][0]  # wider with more steps


def test_unknown_format_is_named_and_leaves_the_file_as_it_was(tmp_path):
  path = tmp_path / 'scores.xyz'
  path.write_text('kept')
  with pytest.raises(InputError, match='scores.xyz'):
    plots.bleu_by_length(path, {'a': [{'words': 'over 0', 'above': 0, 'up_to': None, 'bleu': 1.0}]})
  assert path.read_text() == 'kept'


def test_long_text_plot_has_lower_dpi(tmp_path):
  from matplotlib import figure, image

  for inches, wide in ((2, 240), (600, 8000)):  # 600: of some 2,000 words
    plots._save(figure.Figure(figsize=(inches, 1)), tmp_path / 'x.png')
    assert image.imread(tmp_path / 'x.png').shape[1] == pytest.approx(wide, abs=1)


@pytest.mark.parametrize('attends', [False, True])
def test_segmented_images_have_the_colours_of_their_classes(tmp_path, attends):
  from matplotlib import image

  mask_YX = np.array([[0, 0, 1], [0, -1, 1]])
  attention_YX = np.array([[0.0, 1.0]]) if attends else None
  picture = plots.Picture(
    np.full((2, 3, 3), 200, np.uint8), {'truth': mask_YX, 'prediction': 0 * mask_YX}, attention_YX
  )
  plots.segmentations(tmp_path / 'x.png', [picture, picture], ['sea $', 'land'], ['#0000ff', '#00ff00'])
  shown = np.rint(255 * image.imread(tmp_path / 'x.png')[..., :3]).astype(int)
  area = lambda colour: np.sum(np.all(shown == colour, axis=-1))
  sea, land = area((0, 0, 255)), area((0, 255, 0))
  assert sea / land == pytest.approx(9 / 2, rel=0.1)  # pixels of each row
  panels = 4 if attends else 3
  assert shown.shape[1] == pytest.approx(2.2 * 120 * panels, abs=2)
