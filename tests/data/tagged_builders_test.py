"""WNUT-17, SST-2 and the embedded set with labels of words: files to arrays, sizes, and bad files."""

from __future__ import annotations

import pytest

from lmx.data import corpus, pipeline
from lmx.data.builders.embedded_tags import embedded_tags_dataset_builder as embedded_tags
from lmx.errors import InputError


def put(directory, names, texts):
  for name, text in zip(names, texts, strict=True):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(directory, name, **options):
  return corpus.load(name, 'words', manual_dir=str(directory), cache_dir=str(directory / 'cache'), check_sizes=False,
                     **options)  # fmt: skip


CONLL = ('A\tO\nb c\tB-x\n\t\n\nD\tI-x\n', 'A\tO\n', 'zebra\tB-y\n\n')
PUBLISHED = ('wnut17train.conll', 'emerging.dev.conll', 'emerging.test.annotated')
TABLES = ('train.conll', 'dev.conll', 'test.conll')


@pytest.mark.parametrize('names', [PUBLISHED, [f'tagging/wnut17/{name}' for name in TABLES]])
def test_words_and_labels_of_wnut(names, tmp_path):
  put(tmp_path, names, CONLL)
  made = read(tmp_path, 'wnut17', all_words=True)
  train, test = made.splits['train'], made.splits['test']
  assert made.manifest['token_label_names'] == ['B-x', 'B-y', 'I-x', 'O'] and made.manifest['label_names'] == []
  assert made.tokenizer.pieces(train.tokens) == ['A', 'b_c', 'D']  # white space inside a word would divide it
  assert train.token_labels.tolist() == [3, 0, 2] and train.offsets.tolist() == [0, 2, 3] and train.labels is None
  assert made.tokenizer.pieces(test.tokens) == ['zebra'] and test.tokens[0] >= made.tokenizer.known
  again = corpus.read(made.dir)
  assert again.hash == made.hash and again.splits['train'].token_labels.tolist() == [3, 0, 2]


def test_a_line_that_is_no_word_and_label(tmp_path):
  put(tmp_path, TABLES, ('A O\n', *CONLL[1:]))
  with pytest.raises(InputError, match='train.conll, line 1: is not "word<TAB>label"'):
    read(tmp_path, 'wnut17')


@pytest.mark.parametrize(('name', 'file'), [('sst2', 'train_sentences.tsv'), ('sst2_phrases', 'train.tsv')])
def test_sentences_and_classes_of_sst(name, file, tmp_path):
  rows = ('1\tgood film\n0\tbad film\n', '1\tfilm\n', '0\tbad\n')
  put(tmp_path, (file, 'dev.tsv', 'test.tsv'), [f'label\tsentence\n{text}' for text in rows])
  made = read(tmp_path, name)
  assert made.manifest['label_names'] == ['negative', 'positive']
  assert made.splits['train'].labels.tolist() == [1, 0] and made.tokenizer.eos_id is None
  put(tmp_path, ('test.tsv',), ('index\tsentence\n0\tbad\n',))
  with pytest.raises(InputError, match='names no column label'):
    read(tmp_path, name)


def test_sst_is_not_downloaded(tmp_path):
  with pytest.raises(InputError, match='name a directory with its tables with data.manual_dir'):
    corpus.load('sst2', 'words', cache_dir=str(tmp_path))


def test_names_of_programs_are_marked():
  words = 'The os.path module and sys.argv my_name or CamelCase , e.g. this'.split()
  found = dict(zip(words, embedded_tags.labels(words), strict=True))
  assert {w for w, label in found.items() if label != 'O'} >= {'os.path', 'sys.argv', 'my_name', 'CamelCase'}
  assert found['my_name'] == 'I-name' and found['os.path'] == 'B-name' and found['The'] == found['module'] == 'O'


@pytest.mark.real_data
def test_published_sizes(data_dir, tmp_path):
  for name, sizes in (('wnut17', (3394, 1009, 1287)), ('sst2', (6920, 872, 1821))):
    cfg = pipeline.Config(dataset=name, manual_dir=str(data_dir), cache_dir=str(tmp_path), characters=50)
    made = pipeline.load(cfg)
    assert tuple(made.splits[s].counts['documents'] for s in ('train', 'valid', 'test')) == sizes
