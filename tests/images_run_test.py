"""A user's images and masks from preparation to masks of new images, by the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from lmx.cli import main

COLOURS = np.array([[90, 90, 90], [220, 40, 40], [40, 40, 220]], np.uint8)
TINY = {  # on the settings of experiments/cfnet/own.py
  'model.variant': 'tiny',
  'data.batch_size': '8',
  'data.length': '48',
  'data.workers': '2',
  'data.split_fraction': '0.2',
  'optim.optimizer': 'adam',
  'optim.lr': '3e-4',
  'train.steps': '60',
  'train.eval_every': '30',
  'samples.count': '0',
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Return 40 images of one square each, whose colour is its class."""
  folder, rng = tmp_path_factory.mktemp('own'), np.random.default_rng(0)
  for part in ('images', 'masks'):
    (folder / part / 'train').mkdir(parents=True)
  for i in range(40):
    height, width = rng.integers(40, 90, 2)
    mask_YX = np.zeros((height, width), np.uint8)
    y, x = rng.integers(0, height - 24), rng.integers(0, width - 24)
    mask_YX[y : y + 24, x : x + 24] = rng.integers(1, 3)
    image_YXC = COLOURS[mask_YX] + rng.integers(-20, 20, (height, width, 3))
    Image.fromarray(image_YXC.astype(np.uint8)).save(folder / f'images/train/{i:02d}.jpg')
    Image.fromarray(mask_YX).save(folder / f'masks/train/{i:02d}.png')
  (folder / 'classes.txt').write_text('ground\nred\nblue\n')
  return folder


@pytest.mark.slow
def test_user_images_train_and_predict(folder, tmp_path, capsys):
  settings = [f'--config.{key}={value}' for key, value in (TINY | {'data.manual_dir': folder}).items()]
  config = ['--config=experiments/cfnet/own.py', *settings]
  assert main.main(['prepare', *config]) == 0
  printed = capsys.readouterr().out
  assert 'segmentation_files with masks of 3 classes' in printed and ' images\n' in printed
  assert main.main(['train', *config, f'--workdir={tmp_path / "run"}']) == 0
  results = json.loads((tmp_path / 'run/results.json').read_text())
  assert 'held out of the training data (data.split_fraction), images: 8 for "valid"' in capsys.readouterr().err
  assert results['miou'] > 0.5 and results['pixel_accuracy'] > 0.8
  assert 'central crops of 48 pixels of images with that shorter side' in results['protocol']
  assert main.main(['evaluate', f'--workdir={tmp_path / "run"}', '--split=test']) == 0
  assert f'{results["miou"]:.3g}'[:4] in capsys.readouterr().out
  windows = [
    '--config.evaluation.images=windows',
    '--config.objective.scales=(0.75,1.25)',
    '--config.objective.flip=true',
  ]
  output = f'--output={tmp_path / "windows.json"}'
  assert main.main(['evaluate', f'--workdir={tmp_path / "run"}', '--split=valid', output, *windows]) == 0
  capsys.readouterr()
  found = json.loads((tmp_path / 'windows.json').read_text())
  sizes = [Image.open(path).size for path in (folder / 'images/train').iterdir()]
  assert 'windows of 48 pixels at a longer side of 52 pixels; scales 0.75, 1.25; mirrored too' in found['protocol']
  assert found['miou'] > 0.4 and 8 * 40**2 <= found['tokens_counted'] < sum(x * y for x, y in sizes)
  args = [f'--workdir={tmp_path / "run"}', f'--input={folder / "images/train"}', f'--masks={folder / "masks/train"}']
  assert main.main(['predict', *args, f'--output={tmp_path / "out"}']) == 0
  score = capsys.readouterr().err
  assert 'in 40 images are right' in score and float(score.split('mIoU ')[1][:6]) > 0.5
  for i in range(40):
    with Image.open(tmp_path / f'out/{i:02d}.png') as mask, Image.open(folder / f'images/train/{i:02d}.jpg') as image:
      assert mask.size == image.size
