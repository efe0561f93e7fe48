"""Folders of images and masks: each layout, the identity of its files, and errors that name the file."""

from __future__ import annotations

import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from lmx.data import image_corpus, image_files, pipeline, sources
from lmx.data.builders import segmentation
from lmx.errors import InputError


def put_image(path, size=(9, 6), colour=(10, 20, 30)):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.new('RGB', size, colour).save(path)


def put_mask(path, values, mode='L'):
  path.parent.mkdir(parents=True, exist_ok=True)
  image = Image.fromarray(np.asarray(values, np.uint8))
  if mode == 'P':
    image.putpalette(image_files.colour_map().tobytes())
  image.save(path)


def mask(value=1):
  values_YX = np.zeros((6, 9), np.uint8)
  values_YX[:3, :4] = value
  return values_YX


def put_own(folder, train=3, splits=('valid', 'test'), classes='sky\nsea\nland\n'):
  for split, count in (('train', train), *((name, 1) for name in splits)):
    for i in range(count):
      put_image(folder / f'images/{split}/{i}.{"png" if i else "jpg"}', colour=(i, len(split), 0))
      put_mask(folder / f'masks/{split}/{i}.png', mask(i % 3))
  (folder / 'classes.txt').write_text(classes)
  return folder


def config(folder, **fields):
  fields = {'batch_size': 2, 'length': 8, 'cache_dir': str(folder.parent / 'cache'), 'check_sizes': False} | fields
  return pipeline.Config(dataset='segmentation_files', manual_dir=str(folder), batching='images', **fields)


def labels(corpus, split):
  return [corpus.images[int(number)].labels_YX for number in corpus.splits[split].tokens]


def put_voc(root, masks, lists, value=20):
  for i, name in enumerate(('train', 'val')):
    put_image(root / f'JPEGImages/2007_{i}.jpg')
    put_mask(root / f'{masks}/2007_{i}.png', mask(value), 'P')
    values_YX = mask(value)
    values_YX[5] = 255
    put_mask(root / f'{masks}/2007_{i}.png', values_YX, 'P')
    (root / f'ImageSets/{lists}').mkdir(parents=True, exist_ok=True)
    (root / f'ImageSets/{lists}/{name}.txt').write_text(f'2007_{i}\n')
  return root


def test_own_images_have_the_classes_of_the_file_and_keep_their_bytes(tmp_path):
  folder = put_own(tmp_path / 'own')
  cfg = config(folder)
  corpus = pipeline.load(cfg)
  assert corpus.manifest['label_names'] == ['sky', 'sea', 'land']
  assert corpus.manifest['palette'] == ['#000000', '#800000', '#008000']
  assert {name: split.counts['documents'] for name, split in corpus.splits.items()} == {
    'train': 3,
    'valid': 1,
    'test': 1,
  }
  for i, labels_YX in enumerate(labels(corpus, 'train')):
    np.testing.assert_array_equal(labels_YX, mask(i))
  example = corpus.images[1]
  assert example.name == '1.png' and example.image.getpixel((0, 0)) == (1, 5, 0)
  row = sources.open_splits(cfg)['train'][0]
  assert row['image'] == (folder / 'images/train/0.jpg').read_bytes()
  assert 'tensorflow' not in sys.modules


def test_identity_depends_on_file_content(tmp_path):
  folder = put_own(tmp_path / 'own')
  before = pipeline.load(config(folder)).hash
  assert pipeline.load(config(folder)).hash == before and image_corpus.is_prepared(config(folder))
  path = folder / 'masks/train/0.png'
  content = path.read_bytes()
  put_mask(path, mask(2))
  assert not image_corpus.is_prepared(config(folder)) and pipeline.load_prepared(config(folder)) is None
  assert pipeline.load(config(folder)).hash != before
  path.write_bytes(content)
  assert pipeline.load(config(folder)).hash == before
  (folder / 'classes.txt').write_text('sky\nsea\nland\n \n\n')
  assert pipeline.load(config(folder)).hash == before
  (folder / 'classes.txt').write_text('sky\nsea\nland\nrock\n')
  assert pipeline.load(config(folder)).hash != before


def test_missing_splits_are_held_out_of_the_training_images(tmp_path):
  folder = put_own(tmp_path / 'own', train=8, splits=())
  cfg = config(folder, split_fraction=0.2)
  corpus = pipeline.load(cfg)
  assert [corpus.split(name).counts['documents'] for name in ('train', 'valid', 'test')] == [4, 2, 2]
  assert corpus.images[7].name == '7.png'
  assert pipeline.held_out_notes(cfg, corpus)[0].endswith('images: 2 for "valid", 2 for "test"')
  names = [corpus.images[i].name for i in range(len(corpus.images))]
  assert sorted(names) == sorted({*names})
  with pytest.raises(InputError, match='too few to hold out'):
    pipeline.load(config(put_own(tmp_path / 'two', train=2, splits=()), split_fraction=0.4))


def test_text_views_work_for_images(tmp_path):
  folder = put_own(tmp_path / 'own')
  corpus = pipeline.load(config(folder, train_splits=('train', 'valid')))
  assert corpus.splits['train'].tokens.tolist() == [0, 1, 2, 3]
  few = pipeline.load(config(folder, train_documents=2))
  assert len(few.splits['train'].tokens) == 2 and few.hash != corpus.hash


@pytest.mark.parametrize('root', ['', 'VOCdevkit/VOC2012'])
def test_voc_ignores_255(root, tmp_path):
  put_voc(tmp_path / 'in' / root, 'SegmentationClass', 'Segmentation')
  corpus = pipeline.load(config(tmp_path / 'in'))
  assert len(corpus.manifest['label_names']) == 21 and corpus.manifest['label_names'][20] == 'tvmonitor'
  assert [*corpus.splits] == ['train', 'valid']
  (labels_YX,) = labels(corpus, 'valid')
  assert labels_YX[0, 0] == 20 and labels_YX[0, 8] == 0 and (labels_YX[5] == image_files.IGNORED).all()


def test_published_sizes_are_checked(tmp_path):
  put_voc(tmp_path / 'in', 'SegmentationClass', 'Segmentation')
  with pytest.raises(InputError, match='train: got 1 images in'):
    pipeline.load(config(tmp_path / 'in', check_sizes=True))


def test_pascal_context_has_the_background_and_59_classes(tmp_path):
  root = put_voc(tmp_path / 'in/VOC2010', 'SegmentationClassContext', 'SegmentationContext', value=59)
  corpus = pipeline.load(config(tmp_path / 'in'))
  assert len(corpus.manifest['label_names']) == 60 and corpus.manifest['label_names'][59] == 'wood'
  assert labels(corpus, 'train')[0][0, 0] == 59
  (root / 'SegmentationClassContext').rename(root / 'elsewhere')
  (root / 'trainval_merged.json').write_text('{}')
  with pytest.raises(InputError, match='trainval_merged.json: got'):
    segmentation.find(str(tmp_path / 'in'))


def test_ade20k_ignores_other_objects(tmp_path):
  root = tmp_path / 'in/ADEChallengeData2016'
  for name in ('training', 'validation'):
    put_image(root / f'images/{name}/a.jpg')
    values_YX = mask(3)
    values_YX[4] = 255
    put_mask(root / f'annotations/{name}/a.png', values_YX)
  rows = ['Idx\tRatio\tTrain\tVal\tName', '1\t0.1\t1\t1\twall', '2\t0.1\t1\t1\tbuilding, edifice', '3\t0\t1\t1\tbed ']
  (root / 'objectInfo150.txt').write_text('\n'.join(rows) + '\n')
  corpus = pipeline.load(config(tmp_path / 'in'))
  assert corpus.manifest['label_names'] == ['wall', 'building', 'bed']
  (labels_YX,) = labels(corpus, 'train')
  assert labels_YX[0, 0] == 2 and (labels_YX[3:] == image_files.IGNORED).all()


def _alone(folder):
  put_mask(folder / 'masks/train/9.png', mask())


def _unlabelled(folder):
  put_image(folder / 'images/train/9.jpg')


def _size(folder):
  put_image(folder / 'images/train/2.png', (9, 7))


def _index(folder):
  put_mask(folder / 'masks/valid/0.png', mask(3))


def _truncated(folder):
  path = folder / 'images/train/0.jpg'
  path.write_bytes(path.read_bytes()[:-200])


def _no_image(folder):
  (folder / 'masks/train/1.png').write_text('no image')


def _colour(folder):
  image = Image.new('RGB', (9, 6), (1, 2, 3))
  image.save(folder / 'masks/train/1.png')


def _empty(folder):
  for path in (folder / 'images/test').iterdir():
    path.unlink()


def _twice(folder):
  put_image(folder / 'images/train/0.png')


def _other(folder):
  (folder / 'images/train/notes.gif').write_text('')


def _nested(folder):
  put_image(folder / 'images/train/more/9.png')


def _loose(folder):
  put_image(folder / 'images/9.png')


def _linked(folder):
  for name in ('images', 'masks'):
    (folder / f'{name}/train/9.png').symlink_to(folder / 'none.png')


def _deep(folder):
  Image.fromarray(np.zeros((6, 9), np.uint16)).save(folder / 'images/train/1.png')


def _classes(text):
  return lambda folder: (folder / 'classes.txt').write_text(text)


@pytest.mark.parametrize(
  ('spoil', 'message'),
  [
    (_alone, r'masks/train: got .*: 9.png'),
    (_unlabelled, r'images/train: got .*: 9.jpg'),
    (_size, r'masks/train/2.png: got 9 x 6 pixels'),
    (_index, r'masks/valid/0.png: got index 3'),
    (_truncated, r'images/train/0.jpg: got an image'),
    (_no_image, r'masks/train/1.png: got an image'),
    (_colour, r'masks/train/1.png: got colour #010203'),
    (_empty, r'images/test: got an empty folder'),
    (_twice, r'images/train/0.png: got .*0.jpg'),
    (_other, r'notes.gif: got another file type'),
    (_nested, r'images/train/more: got a folder'),
    (_loose, r'images/9.png: got a file'),
    (_linked, r'images/train/9.png: got a link'),
    (_deep, r'images/train/1.png: got .*I;16'),
    (_classes('sky\n'), r'classes.txt: got 1 classes'),
    (_classes('sky\n\nsea\nland\n'), r'classes.txt, line 2: got no name'),
    (_classes('\nsky\nsea\nland\n'), r'classes.txt, line 1: got no name'),
    (_classes('sky\t#00ff00\n\t#ff0000\nsea\t#0000ff\n'), r'classes.txt, line 2: got no name'),
    (_classes('sky\nsky\n'), r'classes.txt: got class "sky" twice'),
    (_classes('sky #00ff00\nsea\n'), r'expected a tab between a name and its colour'),
    (_classes('sky\t#00ff00\nsea\tblue\n'), r'class "sea": got colour "blue"'),
    (_classes('sky\t#00ff00\nsea\t#00ff00\n'), r'got one colour for sky and sea'),
  ],
)
def test_errors_name_the_file(spoil, message, tmp_path):
  folder = put_own(tmp_path / 'own')
  spoil(folder)
  with pytest.raises(InputError, match=message):
    pipeline.load(config(folder))
  left = [path.name for path in (tmp_path / 'cache').glob('datasets/*')] if (tmp_path / 'cache').exists() else []
  assert left == []


@pytest.mark.parametrize('name', ['nothing', 'empty'])
def test_folder_of_another_layout_is_rejected(name, tmp_path):
  (tmp_path / 'empty').mkdir()
  with pytest.raises(InputError, match='segmentation_files'):
    pipeline.load(config(tmp_path / name))


def test_masks_with_the_colours_of_classes(tmp_path):
  classes = image_files.Classes(('sky', 'sea'), np.array([[0, 0, 255], [0, 255, 0]], np.uint8))
  rgb_YXC = np.array([[[0, 255, 0], [0, 0, 255], [224, 224, 192]]], np.uint8)
  Image.fromarray(rgb_YXC).save(tmp_path / 'mask.png')
  found = image_files.open_mask(tmp_path / 'mask.png', 'mask.png', classes)
  assert found.tolist() == [[1, 0, 255]]
  content = image_files.encode_mask(found, classes.colours_C3)
  assert image_files.open_mask(content, 'mask.png', classes).tolist() == [[1, 0, 255]]
  (tmp_path / 'mask.png').write_bytes(content)
  with Image.open(tmp_path / 'mask.png') as image:
    assert np.asarray(image.convert('RGB')).tolist() == rgb_YXC.tolist()


def encode(size, depth, colour, rows):
  """Return a PNG of a size and a colour type (0 grey, 2 RGB) with `depth` bits a sample, whose rows are bytes."""
  header = struct.pack('>IIBBBBB', *size, depth, colour, 0, 0, 0)
  filtered = np.pad(rows.astype(np.uint8), [(0, 0), (1, 0)]).tobytes()
  chunks = (b'IHDR', header), (b'IDAT', zlib.compress(filtered)), (b'IEND', b'')
  pack = lambda kind, x: struct.pack('>I', len(x)) + kind + x + struct.pack('>I', zlib.crc32(kind + x))
  return b'\x89PNG\r\n\x1a\n' + b''.join(pack(*chunk) for chunk in chunks)


def encode_grey(values_YX, depth):
  """Return a grey PNG with samples of `depth` bits; rows are filled up to whole bytes."""
  (height, width), each = values_YX.shape, 8 // depth
  filled = np.pad(values_YX, [(0, 0), (0, -width % each)]).reshape(height, -1, each)
  return encode((width, height), depth, 0, (filled << (8 - depth * np.arange(1, each + 1))).sum(-1))


@pytest.mark.parametrize('depth', [1, 2, 4])
def test_grey_masks_of_few_bits_keep_their_indices(depth):
  values_YX = (np.arange(33) % 2**depth).reshape(3, 11)
  classes = image_files.Classes(tuple(map(str, range(2**depth))), image_files.colour_map(2**depth))
  found = image_files.open_mask(encode_grey(values_YX, depth), 'mask.png', classes)
  np.testing.assert_array_equal(found, values_YX)


def test_mask_of_colours_with_16_bits_is_rejected():
  rows = np.array([[0, 0, 0, 0, 0, 200, 0, 0, 0, 0, 0, 100]])  # two blues of upper bits 0
  classes = image_files.Classes(('sky', 'sea'), image_files.colour_map(2))
  with pytest.raises(InputError, match='mask.png: got RGB with 16 bits'):
    image_files.open_mask(encode((2, 1), 16, 2, rows), 'mask.png', classes)


def test_palette_in_another_order_is_rejected(tmp_path):
  put_mask(tmp_path / 'mask.png', mask(), 'P')
  colours = image_files.colour_map()[[0, 2, 1]]
  classes = image_files.Classes(('ground', 'sea', 'sky'), colours, is_coloured=True)
  with pytest.raises(InputError, match='index 1 of the palette: got'):
    image_files.open_mask(tmp_path / 'mask.png', 'mask.png', classes)
  found = image_files.open_mask(tmp_path / 'mask.png', 'mask.png', classes._replace(is_coloured=False))
  np.testing.assert_array_equal(found, mask())


def test_colours_match_voc():
  assert image_files.colour_map()[[1, 2, 15, 255]].tolist() == [
    [128, 0, 0],
    [0, 128, 0],
    [192, 128, 128],
    [224, 224, 192],
  ]


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'tokenizer': 'bpe'}, r"data.tokenizer: got 'bpe'"),
    ({'reverse': True}, r'data.reverse: got True'),
    ({'min_count': 3}, r'data.min_count: got 3'),
    ({'documents': 'line'}, r"data.documents: got 'line'"),
    ({'batching': 'streams'}, r'data.batching: got "streams"'),
    ({'dataset': 'ptb'}, r'data.batching: got "images"'),
    ({'dataset': 'generated'}, r'data.dataset: got "generated"'),
    ({'length': 10_000}, r'data.length: got 10000'),
  ],
)
def test_settings_of_texts_are_rejected(fields, message):
  with pytest.raises(InputError, match=message):
    pipeline.Config(**{'dataset': 'segmentation_files', 'batching': 'images'} | fields)
