"""Masks of images of any size: predicted, written with a legend, and scored at the size of the images."""

from __future__ import annotations

import dataclasses
import functools
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from lmx import inference, objectives
from lmx.cli import main
from lmx.config import resolve
from lmx.data import image_corpus, image_files, pipeline
from lmx.errors import InputError
from lmx.models import registry
from lmx.objectives import segment
from lmx.prediction import segmentation
from lmx.runs import convert, init, restore

COLOURS = np.array([[200, 20, 20], [20, 200, 20], [20, 20, 200]], np.uint8)
SIZES = {'a': (20, 12), 'b': (12, 20), 'c': (31, 17), 'd': (8, 8)}


def put(path, array):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(array).save(path)


def encode(image):
  buffer = io.BytesIO()
  image.save(buffer, 'PNG')
  return buffer.getvalue()


def truth(size, first=0):
  """Return a mask with `first` above and another class on the right of the rest."""
  mask_YX = np.full(size[::-1], first, np.uint8)
  mask_YX[size[1] // 2 :, size[0] // 2 :] = (first + 1) % 3
  return mask_YX


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Return the user's own images, of three classes that are colours, and a run that is not trained."""
  folder = tmp_path_factory.mktemp('images')
  for split in ('train', 'valid'):
    for i, (name, size) in enumerate(SIZES.items()):
      put(folder / f'data/images/{split}/{name}.png', COLOURS[truth(size, i % 3)])
      put(folder / f'data/masks/{split}/{name}.png', truth(size, i % 3))
  (folder / 'data/classes.txt').write_text('red\t#ff0000\ngreen\t#00ff00\nblue\t#0000ff\n')
  config = resolve.resolve(
    {
      'name': 'own',
      'model': {'name': 'cfnet', 'variant': 'tiny'},
      'data': {
        'dataset': 'segmentation_files',
        'manual_dir': str(folder / 'data'),
        'cache_dir': str(folder / 'cache'),
        'split_fraction': 0.0,
        'batching': {'name': 'images', 'evaluation': 'whole'},
        'batch_size': 2,
        'length': 16,
      },
      'train': {'steps': 1},
    }
  )
  corpus = pipeline.load(resolve.to_run(config).data)
  config, run = resolve.with_corpus(config, corpus)
  rng, shapes = np.random.default_rng(0), jax.eval_shape(lambda: init.init_params(run, jax.random.key(0)))
  params = jax.tree.map(lambda x: np.abs(rng.standard_normal(x.shape)).astype(x.dtype), shapes)
  record = {'hash': corpus.hash, **corpus.manifest, 'imported_from': ''}
  record['hash'] = resolve.run_files.manifest_hash({k: v for k, v in record.items() if k != 'hash'})
  imported = convert.Imported(run, config, params, corpus.tokenizer, record, [], [], [])
  convert.write(imported, folder / 'run')
  return folder


@pytest.fixture
def colours(monkeypatch):
  """Predict the brightest channel, and class 0 where it is dark; count the compiled programs."""
  shapes = []

  def probabilities(cfg, model, model_cfg, params, batch):
    del model, model_cfg, params
    shapes.append(batch['images_BYXC'].shape)
    x_BYXC = batch['images_BYXC'].astype(jnp.float32) + jnp.array([1.0, 0.0, 0.0])
    return x_BYXC / jnp.sum(x_BYXC, axis=-1, keepdims=True)

  monkeypatch.setattr(objectives.get('segment'), 'probabilities', probabilities)
  return shapes


@pytest.fixture(scope='module')
def loaded(folder):
  return inference.load(folder / 'run')


def test_masks_have_the_size_of_the_images(loaded, folder, colours):
  found = loaded.predict(str(folder / 'data/images/valid'))
  assert [row['image'] for row in found] == [f'{name}.png' for name in SIZES]
  for i, (row, size) in enumerate(zip(found, SIZES.values(), strict=True)):
    assert (row['width'], row['height']) == size and row['mask'].dtype == np.uint8
    wrong = row['mask'] != truth(size, i % 3)
    assert wrong.mean() < 0.12, f'{row["image"]}: {wrong.mean()}'  # only borders, by the interpolation
    assert sum(row['shares'].values()) == pytest.approx(1)
    assert row['shares'] == {loaded.labels[c]: (row['mask'] == c).mean() for c in np.unique(row['mask'])}
  assert found.score == ''
  np.testing.assert_array_equal(found[3]['mask'], truth((8, 8), 0))
  assert {*colours} == {(2, 16, 16, 3)}  # one program for images of four sizes


def test_image_read_at_its_own_size_has_each_pixel_right(loaded, folder, colours):
  rng = np.random.default_rng(0)
  labels_YX = rng.integers(0, 3, (16, 16))
  (row,) = loaded.predict(COLOURS[labels_YX])
  np.testing.assert_array_equal(row['mask'], labels_YX)
  assert colours == [(1, 16, 16, 3)]


def test_few_images_are_computed_at_once_where_they_are_large(loaded, folder, colours, monkeypatch):
  whole = loaded.predict(str(folder / 'data/images/valid'))
  monkeypatch.setattr(segmentation, '_NUMBERS', 16 * 16 * 3)
  for row, other in zip(loaded.predict(str(folder / 'data/images/valid')), whole, strict=True):
    np.testing.assert_array_equal(row['mask'], other['mask'])
  assert colours == [(2, 16, 16, 3), (1, 16, 16, 3)]


def test_python_takes_paths_and_arrays(loaded, folder, colours, tmp_path):
  path = folder / 'data/images/valid/a.png'
  grey = np.full((5, 9), 70, np.uint8)
  found = loaded.predict([path, COLOURS[truth((20, 12))], grey])
  assert [row['image'] for row in found] == ['a.png', '1', '2']
  np.testing.assert_array_equal(found[0]['mask'], found[1]['mask'])
  assert found[2]['mask'].shape == (5, 9) and found[2]['shares'] == {'red': 1.0}
  (tmp_path / 'broken.png').write_bytes(path.read_bytes()[:60])
  for wrong in (
    tmp_path / 'broken.png',
    [path, tmp_path / 'broken.png'],
    [],
    [np.zeros((4, 4, 3), np.float32)],
    np.zeros((4, 4, 2), np.uint8),
    str(folder / 'none.png'),
  ):
    with pytest.raises(InputError):
      loaded.predict(wrong)
  with pytest.raises(InputError, match='got inputs and a split, or neither'):
    loaded.predict()


def test_model_itself_predicts(loaded, folder):
  found = loaded.predict(str(folder / 'data/images/valid/a.png'))
  assert found[0]['mask'].shape == (12, 20) and found[0]['mask'].max() < 3


def run(*args, capsys):
  code = main.main(['predict', *map(str, args)])
  return code, *capsys.readouterr()


def test_folder_of_masks_with_a_legend(folder, tmp_path, colours, capsys):
  (tmp_path / 'in').mkdir()
  (tmp_path / 'in/notes.txt').write_text('')
  for name in SIZES:
    (tmp_path / f'in/{name}.png').write_bytes((folder / f'data/images/valid/{name}.png').read_bytes())
  out = tmp_path / 'out'
  args = ('--workdir', folder / 'run', '--input', tmp_path / 'in', '--masks', folder / 'data/masks/valid')
  code, printed, notes = run(*args, '--output', out, capsys=capsys)
  assert code == 0 and printed == ''
  assert (
    '1 files and folders of' in notes
    and f'wrote {out}: 4 masks' in notes
    and 'labelled pixels in 4 images are right' in notes
  )
  assert sorted(p.name for p in out.iterdir()) == [
    *(f'{n}.png' for n in SIZES),
    'legend.json',
    'legend.png',
    segmentation.ROWS,
  ]
  total = np.zeros(3)
  for line, (name, size) in zip((out / segmentation.ROWS).read_text().splitlines(), SIZES.items(), strict=True):
    row = json.loads(line)
    with Image.open(out / row['mask']) as mask:
      assert mask.mode == 'P' and mask.size == size and row['mask'] == row['image'] == f'{name}.png'
      assert mask.getpalette()[:9] == [255, 0, 0, 0, 255, 0, 0, 0, 255]
      total += np.bincount(np.asarray(mask).ravel(), minlength=3)
  legend = json.loads((out / 'legend.json').read_text())
  assert [(one['index'], one['name'], one['colour']) for one in legend] == [
    (0, 'red', '#ff0000'),
    (1, 'green', '#00ff00'),
    (2, 'blue', '#0000ff'),
  ]
  np.testing.assert_allclose([one['share'] for one in legend], total / total.sum())
  with Image.open(out / 'legend.png') as picture:
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255)} <= {colour for _, colour in picture.getcolors(10_000)}
  code, _, error = run(*args, '--output', out, capsys=capsys)
  assert code == 2 and f'{out} exists already; expected a missing or empty folder' in error


def test_lines_of_json_without_an_output(folder, colours, capsys):
  code, printed, notes = run('--workdir', folder / 'run', '--split', 'valid', capsys=capsys)
  rows = [json.loads(line) for line in printed.splitlines()]
  assert code == 0 and [row['image'] for row in rows] == [f'{name}.png' for name in SIZES]
  assert {*rows[0]} == {'image', 'width', 'height', 'shares'} and 'in 4 images are right' in notes


def test_broken_image_is_reported_and_skipped(folder, tmp_path, colours, capsys):
  (tmp_path / 'in').mkdir()
  content = (folder / 'data/images/valid/a.png').read_bytes()
  for name in ('1', '3'):
    (tmp_path / f'in/{name}.png').write_bytes(content)
  (tmp_path / 'in/2.png').write_bytes(content[:60])
  (tmp_path / 'in/4.png').symlink_to(tmp_path / 'none.png')
  args = ('--workdir', folder / 'run', '--input', tmp_path / 'in')
  code, _, error = run(*args, '--output', tmp_path / 'out', capsys=capsys)
  assert code == 2 and '2 of 4 images cannot be read; the others are in' in error
  assert 'in/2.png: got an image' in error and 'in/4.png: got an image' in error
  assert sorted(p.name for p in (tmp_path / 'out').iterdir())[:3] == ['1.png', '3.png', 'legend.json']
  code, printed, error = run(*args, capsys=capsys)
  assert code == 2 and len(printed.splitlines()) == 2 and 'in/2.png' in error


def test_image_with_a_bad_true_mask_is_predicted_and_not_scored(folder, tmp_path, colours, capsys):
  (tmp_path / 'masks').mkdir()
  for name in SIZES:
    (tmp_path / f'masks/{name}.png').write_bytes((folder / f'data/masks/valid/{name}.png').read_bytes())
  put(tmp_path / 'masks/a.png', truth((4, 4)))
  (tmp_path / 'masks/b.png').write_bytes(b'no image')
  put(tmp_path / 'masks/c.png', np.full(SIZES['c'][::-1], 7, np.uint8))
  args = ('--workdir', folder / 'run', '--input', folder / 'data/images/valid')
  code, _, error = run(*args, '--masks', tmp_path / 'masks', '--output', tmp_path / 'out', capsys=capsys)
  assert code == 2 and '3 of 4 images are predicted but not scored' in error and 'images cannot be read' not in error
  assert 'a.png: got 4 x 4 pixels' in error and 'b.png: got an image' in error and 'c.png: got index 7' in error
  assert '64 labelled pixels in 1 images are right' in error
  assert run(*args, '--output', tmp_path / 'plain', capsys=capsys)[0] == 0
  for path in (tmp_path / 'plain').iterdir():
    assert path.read_bytes() == (tmp_path / 'out' / path.name).read_bytes()
  code, printed, error = run(*args, '--masks', tmp_path / 'masks', capsys=capsys)
  assert code == 2 and len(printed.splitlines()) == 4 and '3 of 4 images are predicted' in error


@pytest.mark.parametrize(
  ('files', 'args', 'message'),
  [
    ({}, (), 'got a folder without images'),
    ({'a.png': (4, 4), 'a.jpg': (4, 4)}, (), 'got both a.jpg and a.png'),
    ({'legend.png': (4, 4)}, ('--output', 'out'), 'got one named "legend"'),
    ({'a.png': (4, 4)}, ('--masks', 'empty'), 'empty/a.png: no such file'),
    ({'a.png': (4, 4)}, ('--masks', 'masks'), 'masks/a.png: got 20 x 12 pixels; expected 4 x 4'),
    ({'a.png': (4, 4)}, ('--glue',), '--glue: got it for'),
    ({'a.png': (4, 4)}, ('--n_best=3',), '--n_best: got it for'),
  ],
)
def test_invalid_inputs_are_rejected(files, args, message, folder, tmp_path, monkeypatch, colours, capsys):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'in').mkdir()
  (tmp_path / 'empty').mkdir()
  put(tmp_path / 'masks/a.png', truth((20, 12)))
  for name, size in files.items():
    put(tmp_path / 'in' / name, np.zeros((*size, 3), np.uint8))
  code, _, error = run('--workdir', folder / 'run', '--input', 'in', *args, capsys=capsys)
  assert code == 2 and message in error


def test_run_is_read_with_the_data_of_a_config(folder):
  config = resolve.load(
    'experiments/cfnet/own.py', [f'data.manual_dir={folder / "data"}', f'data.cache_dir={folder / "cache"}']
  )
  other = restore.load(folder / 'run', 'best', ['data.batch_size=3'], config.to_dict())
  assert other.run.name == 'cfnet_own_resnet50' and other.run.model.D == 16
  assert other.run.objective.classes == 3 and other.run.data.tokenizer_path == '' and other.run.data.length == 480
  assert other.corpus().manifest['label_names'] == other.labels


def test_ngrams_reject_data_without_text(capsys):
  for config, name in (('cfnet/own', 'segmentation_files'), ('ntm/quickstart', 'generated')):
    assert main.main(['ngrams', f'--config=experiments/{config}.py']) == 2
    assert f'got "{name}"' in capsys.readouterr().err


def test_pixels_without_a_class_are_not_scored(loaded):
  labels_YX = np.array([[0, 1, 2, image_files.IGNORED]], np.uint8)
  areas_C3 = segmentation._areas(loaded.run, labels_YX, np.array([[0, 2, 2, 1]], np.uint8))
  assert areas_C3.tolist() == [[1, 1, 1], [0, 0, 1], [1, 2, 1]]
  assert segmentation.describe_score([areas_C3]).startswith('mIoU 0.5000, 66.67% of 3 labelled pixels in 1 images')


def test_true_masks_use_data_set_class_ids(loaded, folder, monkeypatch):
  record = segmentation.run_files.read_data(folder / 'run')
  record = record | {'dataset': record['dataset'] | {'first': 1}}  # as ADE20K's, whose index 0 has no class
  del record['palette']
  monkeypatch.setattr(segmentation.run_files, 'read_data', lambda workdir: record)
  masks = folder / 'data/masks/valid'
  (item, *_) = segmentation.read_file(loaded, str(folder / 'data/images/valid'), str(masks)).items
  numbers_YX = truth(SIZES['a']).astype(int)
  assert segmentation.classes_of(loaded).colours_C3.tolist() == [[0, 0, 0], [128, 0, 0], [0, 128, 0]]
  np.testing.assert_array_equal(item.read()[1], np.where(numbers_YX, numbers_YX - 1, image_files.IGNORED))


@pytest.mark.parametrize(
  ('changes', 'size', 'expected'),
  [
    ({'evaluation': 'whole'}, (64, 32), ((64, 32), (64, 64))),
    ({'evaluation': 'whole'}, (640, 480), ((64, 48), (64, 64))),
    ({'evaluation': 'crop'}, (640, 480), ((85, 64), (96, 64))),
    ({'evaluation': 'crop'}, (480, 640), ((64, 85), (64, 96))),
    ({'evaluation': 'crop'}, (10_000, 10), ((256, 1), (256, 16))),
    ({'name': 'scenes'}, (60, 64), ((60, 64), (64, 64))),
    ({'evaluation': 'crop', 'length': 35}, (70, 70), ((35, 35), (35, 35))),
    ({'windows': True}, (300, 20), ((300, 20), (384, 384))),
    ({'windows': True}, (9000, 4500), ((8192, 4096), (8192, 8192))),
    ({'evaluation': 'crop', 'length': 35}, (70, 72), ((35, 36), (40, 40))),
  ],
)
def test_images_are_read_at_a_few_sizes(changes, size, expected):
  dataset = 'generated' if changes.get('name') == 'scenes' else 'segmentation_files'
  length = changes.get('length', 64)
  batching = {'name': 'images', **{key: x for key, x in changes.items() if key not in ('length', 'windows')}}
  data = pipeline.Config(dataset=dataset, batching=batching, length=length)
  assert segmentation.sizes(data, size, windows='windows' in changes) == expected


def test_masks_of_generated_scenes_are_known(loaded):
  data = pipeline.Config(
    dataset='generated', batching={'name': 'scenes', 'size': 8, 'eval_examples': 3}, length=32, batch_size=2
  )
  corpus = pipeline.load(data)
  run = loaded.run.__class__(**{**vars(loaded.run), 'data': data})
  other = loaded.__class__(**{**vars(loaded), 'run': run})
  items = list(segmentation._generated(other, corpus, 'valid'))
  batches = pipeline.batches(data, corpus, 'valid', pipeline.EVAL_SEED, train=False)
  assert len(items) == 3
  for i, item in enumerate(items):
    image, labels_YX = item.read()
    np.testing.assert_array_equal(np.asarray(image), batches(i // 2)['images_BYXC'][i % 2])
    np.testing.assert_array_equal(labels_YX, batches(i // 2)['labels_BYX'][i % 2])


@pytest.mark.parametrize('evaluation', ['crop', 'whole', 'windows'])
def test_squares_of_an_evaluation_have_the_same_areas_in_predictions(evaluation, loaded):
  """A side of 20 pixels is no multiple of 8, and padding with black would change classes at the border."""
  rng, rows = np.random.default_rng(1), []
  for i in range(3):
    size = (20, 13 + 5 * i) if evaluation == 'windows' else (20, 20)
    image = Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8))
    labels_YX = rng.integers(0, 3, size, np.uint8)
    rows.append({'id': b'%d' % i, 'image': encode(image), 'mask': encode(Image.fromarray(labels_YX))})
  splits = dict.fromkeys(('train', 'valid'), rows)
  corpus = image_corpus.build(splits, segmentation.classes_of(loaded), {'name': 'small_images'})
  batching = {'name': 'images', 'evaluation': evaluation}
  data = pipeline.Config(dataset='segmentation_files', batching=batching, length=20, batch_size=2)
  windows = {'window': 16, 'base': 22, 'scales': (0.5, 1.0)} if evaluation == 'windows' else {}
  objective = dataclasses.replace(loaded.run.objective, **windows)
  run = loaded.run.__class__(**{**vars(loaded.run), 'data': data, 'objective': objective})
  params = init.init_params(run, jax.random.key(0))
  other = loaded.__class__(**{**vars(loaded), 'run': run, 'params': params})
  batches = pipeline.batches(data, corpus, 'valid', pipeline.EVAL_SEED, train=False)
  function = functools.partial(segment.loss, run.objective, registry.get('cfnet'), run.measured)
  areas = [jax.jit(function)(params, batches(step), ()).metrics['areas_BC3'] for step in range(2)]
  numbers = corpus.splits['valid'].tokens
  items = [segmentation._corpus_item(corpus.images, int(i), np.arange(256)) for i in numbers]
  predicted = [one.areas_C3 for one in segmentation.predictions(other, items)]
  np.testing.assert_array_equal(predicted, np.concatenate(areas)[:3])
  assert (np.sum(predicted, axis=0)[:, 1] > 0).sum() > 1  # several classes are predicted


@pytest.mark.parametrize(
  ('command', 'message'),
  [
    ('export --to={out}', 'model: got "cfnet" in '),
    (
      'embed --input={text} --output={out}.npz',
      'cannot embed: model "cfnet" reads images; expected a model that reads',
    ),
    ('generate --prompt=sea', 'cannot generate: model "cfnet" reads images; expected a model that reads'),
    ('translate --input={text}', 'cannot translate: model "cfnet" reads no source text'),
    ('vectors', 'expected a model with one table of embeddings'),
  ],
)
def test_text_commands_reject_an_image_run(folder, tmp_path, capsys, command, message):
  (tmp_path / 'text').write_text('the sea\n')
  name, *options = command.format(out=tmp_path / 'out', text=tmp_path / 'text').split()
  assert main.main([name, f'--workdir={folder}/run', *options]) == 2
  assert message in capsys.readouterr().err
  assert [path.name for path in tmp_path.iterdir()] == ['text']
