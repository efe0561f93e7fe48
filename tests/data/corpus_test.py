"""The token cache: what it holds, that it is complete or absent, and what damage to it says."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from lmx.data import corpus, encoding, sources, token_file
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning

KINDS = ('bytes', 'characters', 'words', 'bpe', 'wordpiece')
DOCUMENTS = [f'The {n}th cat sat on mat {n}. It was "Mr. Smith" of the\nhouse. Why not?' for n in range(60)]


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'in').mkdir()
  (tmp_path / 'in' / 'train.txt').write_text('\n\n'.join(DOCUMENTS))
  (tmp_path / 'in' / 'valid.jsonl').write_text('{"text": "The cat sat.", "label": "b"}\n{"text": "Why?"}\n')
  (tmp_path / 'in' / 'test.txt').write_text('The mat \u00e9 of the cat.\n')
  return tmp_path


def load(folder, tokenizer='words', **options):
  return corpus.load(
    corpus.Config(
      dataset='text_files',
      tokenizer=tokenizer,
      manual_dir=str(folder / 'in'),
      cache_dir=str(folder / 'cache'),
      **options,
    )
  )


def ptb(folder, **options):
  for part in ('train', 'valid', 'test'):
    (folder / f'{part}.txt').write_text(' a b <unk> \n c \n' * 3)
  return corpus.load(
    corpus.Config(dataset='ptb', manual_dir=str(folder), cache_dir=str(folder / 'cache'), check_sizes=False, **options)
  )


@pytest.mark.parametrize('kind', KINDS)
def test_documents_and_sentences_partition_the_tokens(kind, folder):
  made = load(folder, kind, vocab_size=300 if kind == 'bpe' else 0)
  split, tokenizer = made.splits['train'], made.tokenizer
  assert [*made.splits] == ['train', 'valid', 'test']
  assert split.offsets.dtype == split.sentences.dtype == np.int64
  assert split.offsets[0] == 0 and split.offsets[-1] == len(split.tokens) == split.counts['tokens']
  assert split.tokens.dtype == (np.uint8 if tokenizer.vocab_size <= 256 else np.uint16)
  for n, text in enumerate(DOCUMENTS):
    ids = split.tokens[split.offsets[n] : split.offsets[n + 1]]
    eos = [tokenizer.eos_id] if tokenizer.eos_id is not None else []
    np.testing.assert_array_equal(ids, [*tokenizer.encode(text), *eos])
  assert {*split.offsets.tolist()} <= {*split.sentences.tolist()} and (np.diff(split.sentences) > 0).all()
  assert len(split.sentences) - 1 == 3 * len(DOCUMENTS)
  assert split.counts['documents'] == 60 and split.counts['characters'] == sum(map(len, DOCUMENTS))
  words = sum(len(text.split()) for text in DOCUMENTS)
  assert split.counts['words'] == (len(split.tokens) if kind == 'words' else words)
  test = made.splits['test'].counts
  assert test['bytes'] == test['characters'] + 1  # the é


def test_labels(folder):
  made = load(folder)
  assert made.manifest['label_names'] == ['b']
  np.testing.assert_array_equal(made.splits['valid'].labels, [0, -1])  # -1 for none
  assert made.splits['valid'].labels.dtype == np.int32


def test_stream_is_one_document_with_an_eos_a_line(tmp_path):
  made = ptb(tmp_path)
  split = made.splits['train']
  assert made.tokenizer.ids_to_tokens(split.tokens[:6]) == ['a', 'b', '<unk>', '<eos>', 'c', '<eos>']
  assert len(split.tokens) == 18 == split.counts['words']
  np.testing.assert_array_equal(split.offsets, [0, 18])
  np.testing.assert_array_equal(split.sentences, [0, 4, 6, 10, 12, 16, 18])
  byte = ptb(tmp_path, tokenizer='bpe', vocab_size=300)
  tokens = byte.splits['train'].tokens
  assert (tokens == byte.tokenizer.eos_id).sum() == 1 and tokens[-1] == byte.tokenizer.eos_id
  assert byte.splits['train'].counts['words'] == 18 and '<eos>' in byte.manifest['word_rule']
  assert byte.tokenizer.decode(tokens[:-1]) == ' a b <unk> \n c \n' * 3


def test_vocabulary_is_learned_from_the_splits_requested(folder):
  train = load(folder).tokenizer
  every = load(folder, vocabulary_splits=('train', 'valid', 'test')).tokenizer
  assert 'é' not in train.tokens and 'é' in every.tokens
  with pytest.raises(InputError, match='data.vocabulary_splits: got dev'):
    load(folder, vocabulary_splits=('dev',))


def test_data_are_generated_once_and_deterministically(folder, monkeypatch):
  first = load(folder)
  stamp = os.stat(os.path.join(first.dir, 'manifest.json')).st_mtime_ns
  monkeypatch.setattr(sources, 'open_splits', lambda *_: pytest.fail('tokenised again'))
  assert load(folder).hash == first.hash
  assert os.stat(os.path.join(first.dir, 'manifest.json')).st_mtime_ns == stamp
  monkeypatch.undo()
  other = corpus.load(
    corpus.Config(dataset='text_files', manual_dir=str(folder / 'in'), cache_dir=str(folder / 'other'))
  )
  assert other.hash == first.hash and str(folder) not in json.dumps(dict(other.manifest))
  assert load(folder, min_count=2).hash != first.hash
  (folder / 'in' / 'test.txt').write_text('Other text.\n')
  assert load(folder).hash != first.hash


def _flip(path, place=-5):
  content = bytearray(path.read_bytes())
  content[place] ^= 1
  path.write_bytes(content)


DAMAGES = {
  'truncated': lambda path: path.write_bytes(path.read_bytes()[:-1]),
  'missing': lambda path: path.unlink(),
  'altered': _flip,
  'random': lambda path: path.write_bytes(bytes(range(256)) * 9),
}


@pytest.mark.parametrize('name', ['train.tokens', 'valid.offsets.npy', 'vocabulary.json', 'manifest.json'])
@pytest.mark.parametrize('damage', DAMAGES)
def test_damaged_file_is_named_and_the_cache_rebuilt(name, damage, folder):
  made = load(folder)
  path = pathlib.Path(made.dir, name)
  content = path.read_bytes()
  DAMAGES[damage](path)
  with pytest.warns(InputWarning, match=rf'{name}.*the token cache is rebuilt'):
    again = load(folder)
  assert again.hash == made.hash and path.read_bytes() == content
  assert os.listdir(folder / 'cache' / 'tokens') == [os.path.basename(made.dir)]


def test_large_token_file_is_verified_block_by_block_when_first_read(folder, monkeypatch):
  monkeypatch.setattr(token_file, 'BLOCK', 64)
  monkeypatch.setattr(token_file, 'WHOLE', 0)
  made = load(folder)
  path, ids = pathlib.Path(made.dir, 'train.tokens'), np.array(made.splits['train'].tokens)
  each = 64 // ids.itemsize
  _flip(path, 70)  # in block 1
  tokens = load(folder).splits['train'].tokens  # opens: nothing is read yet
  np.testing.assert_array_equal(tokens[:each], ids[:each])
  np.testing.assert_array_equal(tokens[[[-1, 2 * each], [0, 1]]], ids[[[-1, 2 * each], [0, 1]]])
  np.testing.assert_array_equal(tokens[: 2 * each - 1 : -1], ids[: 2 * each - 1 : -1])
  assert tokens[len(ids) - 1] == ids[-1] and tokens[5:5].size == 0 and len(tokens) == len(ids)
  with pytest.raises(InputError, match='train.tokens: .*block 1'):
    tokens[each - 1 : each + 1]
  assert not os.path.exists(made.dir)
  again = load(folder)
  assert again.hash == made.hash and (again.splits['train'].tokens == ids).all()


@pytest.mark.parametrize('read', [np.asarray, lambda x: x + 1, lambda x: x[np.ones(len(x), bool)], lambda x: x[64]])
def test_every_read_of_a_token_file_is_verified(read, folder, monkeypatch):
  monkeypatch.setattr(token_file, 'WHOLE', 0)
  made = load(folder)
  _flip(pathlib.Path(made.dir, 'train.tokens'))
  with pytest.raises(InputError, match='block 0'):
    read(load(folder).splits['train'].tokens)


def test_manifest_without_checksums_is_verified_by_size_and_ids_with_a_warning(folder, monkeypatch):
  made = load(folder)
  path = pathlib.Path(made.dir, 'manifest.json')
  manifest = json.loads(path.read_text())
  del manifest['blocks'], manifest['sha256']
  path.write_text(json.dumps(manifest))
  assert load(folder).hash == made.hash  # a small file is verified whole
  monkeypatch.setattr(token_file, 'WHOLE', 0)
  tokens = pathlib.Path(made.dir, 'train.tokens')
  tokens.write_bytes(tokens.read_bytes()[:-1] + bytes([255]))
  with pytest.warns(InputWarning, match='train.tokens: .* block checksums'):
    split = load(folder).splits['train']
  with pytest.raises(InputError, match='token id 255, and the vocabulary'):
    split.tokens[:]


@pytest.mark.parametrize(
  'error,fix',
  [
    (OSError(errno.ENOSPC, 'No space left on device'), 'No space left on device; free some space'),
    (OSError(errno.EDQUOT, 'Disk quota exceeded'), 'Disk quota exceeded; free some space, or ask for a larger quota'),
    (OSError(errno.EFBIG, 'File too large'), r'File too large; raise the limit of file sizes \(ulimit -f\)'),
    (RuntimeError('Failed to finalize: write() failed: File too large; writing x'), 'File too large; raise the limit'),
  ],
)
def test_full_disk_leaves_nothing(folder, monkeypatch, error, fix):
  def full(*_, **__):
    raise error

  monkeypatch.setattr(np, 'save', full)
  with pytest.raises(InputError, match=f'cache/tokens: {fix}.*; data.cache_dir or LMX_CACHE names'):
    load(folder)
  monkeypatch.undo()
  assert os.listdir(folder / 'cache' / 'tokens') == []
  assert load(folder).splits['train'].counts['documents'] == 60


@pytest.mark.parametrize('there', ['file', 'file/below', 'cache', 'x' * 300])
def test_invalid_cache_directory_is_rejected(there, folder):
  (folder / 'file').write_text('')
  (folder / 'cache').mkdir()
  (folder / 'cache' / 'tokens').write_text('')
  with pytest.raises(InputError, match='data.cache_dir: .*(cannot be a directory|expected)'):
    corpus.load(corpus.Config(dataset='embedded', cache_dir=str(folder / there)))


def test_id_beyond_the_vocabulary_is_an_error():
  tokenizer = build.train('words', ['a b'])
  tokenizer.vocab_size = 2
  with pytest.raises(InputError, match='token id 2;'):
    corpus.Corpus.from_texts({'train': ['a b']}, tokenizer)


def test_split_without_tokens_is_an_error(folder):
  path = folder / 'vocab.txt'
  path.write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']))
  (folder / 'in' / 'test.txt').write_text('\u200b\n')
  with pytest.raises(InputError, match='split test has no tokens'):
    load(folder, 'wordpiece', tokenizer_path=str(path))


def test_from_texts_equals_the_cache(folder):
  made = load(folder)
  memory = corpus.Corpus.from_texts(
    {'train': DOCUMENTS}, made.tokenizer, sentences='wrapped', labels={'train': [0] * 60}
  )
  for part in ('tokens', 'offsets', 'sentences'):
    np.testing.assert_array_equal(getattr(memory.splits['train'], part), getattr(made.splits['train'], part))
  assert memory.splits['train'].counts == made.splits['train'].counts and memory.dir == ''
  assert memory.hash != corpus.Corpus.from_texts({'train': DOCUMENTS[1:]}, made.tokenizer).hash


def test_bpe_by_sentences_is_bpe_of_the_whole():
  text = 'One "two". Three?\n\nFour...  Five! It\'s\n\n\nSix. '
  tokenizer = build.train('bpe', [text * 9], vocab_size=300)
  made = corpus.Corpus.from_texts({'train': [text]}, tokenizer, sentences='prose').splits['train']
  np.testing.assert_array_equal(made.tokens[:-1], tokenizer.encode(text))
  assert len(made.sentences) == 7


@pytest.mark.parametrize('kind', ['bpe', 'unigram'])
def test_labelled_words_have_the_subwords_of_the_text(kind):
  tokenizer = build.train(kind, DOCUMENTS, vocab_size=400, prefix_space=kind == 'bpe')
  text = DOCUMENTS[0].split()
  (words,) = encoding.encode_words([text], tokenizer)
  np.testing.assert_array_equal(np.concatenate(words), tokenizer.encode(' '.join(text)))
  assert tokenizer.space_first and len(words) == len(text)


def test_prefix_space_has_its_own_cache_and_no_space_before_later_sentences(folder):
  plain, made = (load(folder, 'bpe', vocab_size=300, prefix_space=space) for space in (False, True))
  assert plain.dir != made.dir and made.tokenizer.space_first and not plain.tokenizer.space_first
  assert made.tokenizer.decode(made.splits['train'].tokens[: made.splits['train'].offsets[1] - 1]) == DOCUMENTS[0]


def _load_hash(folder, queue):
  queue.put(load(folder).hash)


def test_processes_at_once_build_one_cache(folder):
  context = multiprocessing.get_context('spawn')
  queue = context.Queue()
  workers = [context.Process(target=_load_hash, args=(folder, queue)) for _ in range(2)]
  for worker in workers:
    worker.start()
  hashes = {queue.get(timeout=120) for _ in workers}
  for worker in workers:
    worker.join()
  assert hashes == {load(folder).hash} and len(os.listdir(folder / 'cache' / 'tokens')) == 1


def test_killed_build_leaves_no_usable_cache(folder):
  code = (
    'import numpy as np, time, sys\n'
    'from lmx.data import corpus\n'
    'def stop(*a, **k):\n'
    '  print("saving", flush=True)\n'
    '  time.sleep(60)\n'
    'np.save = stop\n'
    'corpus.load(corpus.Config(dataset="text_files", manual_dir=sys.argv[1], cache_dir=sys.argv[2]))\n'
  )
  root = pathlib.Path(__file__).resolve().parents[2]
  process = subprocess.Popen(
    [sys.executable, '-c', code, str(folder / 'in'), str(folder / 'cache')],
    stdout=subprocess.PIPE,
    text=True,
    cwd=root,
    env={**os.environ, 'PYTHONPATH': str(root)},
  )
  assert process.stdout.readline() == 'saving\n'
  process.send_signal(signal.SIGKILL)
  process.wait()
  (left,) = os.listdir(folder / 'cache' / 'tokens')
  assert left.startswith('.tmp-')
  made = load(folder)
  assert os.listdir(folder / 'cache' / 'tokens') == [os.path.basename(made.dir)]


def test_embedded_corpus():
  made = corpus.load(corpus.Config(dataset='embedded', min_count=2))  # as the experiments do, so it is in the cache
  counts = made.splits['train'].counts
  assert counts['tokens'] > 200_000 and made.splits['test'].counts['tokens'] > 8_000
  assert (made.splits['test'].tokens == made.tokenizer.unk_id).mean() < 0.08  # the text is that of this Python
  assert len(made.manifest['label_names']) > 100 and made.splits['train'].labels is not None
  assert made.tokenizer.decode(made.splits['train'].tokens[:2000]).count('. ') > 2


@pytest.mark.real_data
@pytest.mark.parametrize(
  ('name', 'words', 'tokens'),
  [('ptb', 10_000, [929_589, 73_760, 82_430]), ('wikitext2', 33_278, [2_088_628, 217_646, 245_569])],
)
def test_words_have_the_published_size(name, words, tokens, data_dir, tmp_path):
  made = corpus.load(corpus.Config(dataset=name, manual_dir=str(data_dir / 'lm' / name), cache_dir=str(tmp_path)))
  assert made.tokenizer.vocab_size == words
  assert [s.counts['tokens'] for s in made.splits.values()] == tokens
  if name == 'wikitext2':
    assert [s.counts['documents'] for s in made.splits.values()] == [600, 60, 60]


@pytest.mark.real_data
def test_brown_has_the_published_size(data_dir, tmp_path):
  made = corpus.load(corpus.Config(dataset='brown', manual_dir=str(data_dir / 'lm' / 'brown'), cache_dir=str(tmp_path)))
  counts = [s.counts for s in made.splits.values()]
  sentences = [len(s.sentences) - 1 for s in made.splits.values()]
  assert [c['tokens'] - n for c, n in zip(counts, sentences, strict=True)] == [945_561, 120_857, 94_774]
  assert sentences == [46_682, 5_914, 4_744]


@pytest.mark.real_data
def test_brown_as_bengio_split_it(data_dir, tmp_path):
  """800,000 / 200,000 / rest; the paper has 1,181,041 words and 47,578 types, and 16,383 seen more than 3 times."""
  options = dict(manual_dir=str(data_dir / 'lm' / 'brown'), cache_dir=str(tmp_path))
  everywhere = ('train', 'valid', 'test')
  made = corpus.load(corpus.Config(dataset='brown_stream', min_count=4, vocabulary_splits=everywhere, **options))
  assert [len(made.splits[name].tokens) for name in everywhere] == [800_000, 200_000, 161_692]
  assert made.tokenizer.vocab_size == 17_905  # with the one symbol for all others
  assert (
    corpus.load(corpus.Config(dataset='brown_stream', vocabulary_splits=everywhere, **options)).tokenizer.vocab_size
    == 56_057 + 1
  )
  text = made.tokenizer.decode(made.splits['train'].tokens[:5])
  assert text == 'The Fulton County Grand Jury'


def test_double_puts_special_tokens_at_both_ends(tmp_path):
  """As Transformer-XL's release encodes One Billion Word: n words are n + 2 tokens."""
  single, double = ptb(tmp_path), ptb(tmp_path, marks='double')
  decode = lambda made: [made.tokenizer.id_to_token(i) for i in made.splits['test'].tokens[:7]]
  assert decode(single) == ['a', 'b', '<unk>', '<eos>', 'c', '<eos>', 'a']
  assert decode(double) == ['<eos>', 'a', 'b', '<unk>', '<eos>', '<eos>', 'c']
  tokens = double.splits['test'].tokens
  assert len(tokens) == 24 and double.splits['test'].sentences.tolist() == [0, 5, 8, 13, 16, 21, 24]
  assert double.tokenizer.decode(np.asarray(tokens).tolist()) == 'a b <unk>\nc\n' * 3
  begun = double.tokenizer.encode('a b\nc').tolist()
  assert double.tokenizer.decode(begun) == 'a b\nc' and begun[-2] == double.tokenizer.eos_id
  assert build.load(double.dir).rule == 'double' and double.dir != single.dir
  with pytest.raises(InputError, match='data.marks: got'):
    corpus.Config(dataset='ptb', tokenizer='bpe', marks='double')
  with pytest.raises(InputError, match='data.marks: got'):
    corpus.Config(dataset='text_files', marks='double')
