"""WNUT-17, SST-2, SST-5 and the embedded set with labels of words: files to arrays, sizes, and bad files."""

from __future__ import annotations

import numpy as np
import pytest

from lmx.data import corpus, pipeline
from lmx.data.builders import generated, sst, tagged
from lmx.errors import InputError


def put(directory, names, texts):
  for name, text in zip(names, texts, strict=True):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(directory, name, tokenizer='words', **options):
  return corpus.load(
    corpus.Config(
      dataset=name,
      tokenizer=tokenizer,
      manual_dir=str(directory),
      **{'check_sizes': False, 'cache_dir': f'{directory}/cache', **options},
    )
  )


CONLL = ('A\tO\nb c\tB-x\n\t\n\nD\tI-x\n', 'A\tO\n', 'zebra\tB-y\n\n')
PUBLISHED = ('wnut17train.conll', 'emerging.dev.conll', 'emerging.test.annotated')
TABLES = ('train.conll', 'dev.conll', 'test.conll')


@pytest.mark.parametrize('names', [PUBLISHED, [f'tagging/wnut17/{name}' for name in TABLES]])
def test_words_and_labels_of_wnut(names, tmp_path):
  put(tmp_path, names, CONLL)
  made = read(tmp_path, 'wnut17', characters=4)
  train, test = made.splits['train'], made.splits['test']
  assert made.manifest['token_label_names'] == ['B-x', 'B-y', 'I-x', 'O'] and made.manifest['label_names'] == []
  assert made.tokenizer.ids_to_tokens(train.tokens) == ['A', 'b_c', 'D']  # white space inside a word would divide it
  assert train.token_labels.tolist() == [3, 0, 2] and train.offsets.tolist() == [0, 2, 3] and train.labels is None
  assert made.tokenizer.ids_to_tokens(test.tokens) == ['zebra'] and test.tokens[0] >= made.tokenizer.known
  again = corpus.read(made.dir)
  assert again.hash == made.hash and again.splits['train'].token_labels.tolist() == [3, 0, 2]


def test_malformed_tag_line_is_rejected(tmp_path):
  put(tmp_path, TABLES, ('A O\n', *CONLL[1:]))
  with pytest.raises(InputError, match='train.conll, line 1: '):
    read(tmp_path, 'wnut17')


@pytest.mark.parametrize(('name', 'file'), [('sst2', 'train_sentences.tsv'), ('sst2_phrases', 'train.tsv')])
def test_sentences_and_classes_of_sst(name, file, tmp_path):
  rows = ('1\tgood film\n0\tbad film\n', '1\tfilm\n', '0\tbad\n')
  put(tmp_path, (file, 'dev.tsv', 'test.tsv'), [f'label\tsentence\n{text}' for text in rows])
  made = read(tmp_path, name)
  assert made.manifest['label_names'] == ['negative', 'positive']
  assert made.splits['train'].labels.tolist() == [1, 0] and made.tokenizer.eos_id is None
  put(tmp_path, ('test.tsv',), ('index\tsentence\n0\tbad\n',))
  with pytest.raises(InputError, match='got no column label'):
    read(tmp_path, name)


@pytest.mark.parametrize('name', ['sst2', 'sst5'])
def test_sst_is_not_downloaded(name, tmp_path):
  with pytest.raises(InputError, match=f'data.manual_dir: got no directory of data set {name}'):
    corpus.load(corpus.Config(dataset=name, tokenizer='words', cache_dir=str(tmp_path)))


TREES = (
  "(3 (2 It) (4 (2 's) (3 (2 a) (4 (3 lovely) (2 film)))))\n(0 (2 Not) (1 (3 (4 good) (2 (2 at) (2 all))) (2 .)))\n\n",
  '(2 (2 film) (2 no\xa0more))\n',
  '(4 good)\n',
)


@pytest.mark.parametrize(
  ('name', 'texts', 'labels'),
  [
    ('sst5', ["It 's a lovely film", 'Not good at all .'], [3, 0]),
    (
      'sst5_long_phrases',
      ["It 's a lovely film", "'s a lovely film", 'Not good at all .', 'good at all .'],
      [3, 4, 0, 1],
    ),
    (
      'sst5_phrases',
      [
        *("It 's a lovely film", 'It', "'s a lovely film", "'s", 'a lovely film', 'a', 'lovely film', 'lovely', 'film'),
        *('Not good at all .', 'Not', 'good at all .', 'good at all', 'good', 'at all', 'at', 'all', '.'),
      ],
      [3, 2, 4, 2, 3, 2, 4, 3, 2, 0, 2, 1, 3, 4, 2, 2, 2, 2],
    ),
  ],
)
def test_phrases_and_classes_of_trees(name, texts, labels, tmp_path):
  put(tmp_path, [f'trees/{file}.txt' for file in ('train', 'dev', 'test')], TREES)
  made = read(tmp_path, name)
  train, classes = made.splits['train'], made.manifest['label_names']
  rows = np.split(train.tokens, train.offsets[1:-1])
  assert [' '.join(made.tokenizer.ids_to_tokens(row)) for row in rows] == texts
  assert [classes[i] for i in train.labels] == [sst.FIVE[i] for i in labels]
  valid = made.splits['valid']
  assert [classes[i] for i in valid.labels] == ['neutral'] and len(valid.tokens) == 3  # words divide at any white space
  with pytest.raises(InputError, match='split train: got 2 sentences'):
    read(tmp_path, name, check_sizes=True)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('(3 (2 It) (5 works))', 'got "5" after "\\("'),
    ('(3 (2 It) (4 works)', '1 brackets without their "\\)"'),
    ('(3 (2 It) (4 works)))', '"\\)" outside of a tree'),
    ('(2 It) (4 works)', '"\\(" outside of a tree'),
    ('3 (2 It) (4 works)', '"3" outside of a tree'),
    ('(3 (2 It) (4 works well))', 'more than "works" in a node'),
    ('(3 (2 It) works)', 'more than "works" in a node'),
    ('(3 (2 It) (4))', 'a node without a word'),
    ('(3 (2 It) (', '"the end" after'),
  ],
)
def test_malformed_tree_names_its_line(line, message, tmp_path):
  put(tmp_path, ('train.txt', 'dev.txt', 'test.txt'), (f'(2 film)\n{line}\n', *TREES[1:]))
  with pytest.raises(InputError, match=f'train.txt, line 2: .*{message}'):
    list(sst.read_trees(str(tmp_path / 'train.txt')))


def test_program_names_are_tagged():
  words = 'The os.path module and sys.argv my_name or CamelCase , e.g. this'.split()
  found = dict(zip(words, generated.tags_of(words), strict=True))
  assert {w for w, label in found.items() if label != 'O'} >= {'os.path', 'sys.argv', 'my_name', 'CamelCase'}
  assert found['my_name'] == 'I-name' and found['os.path'] == 'B-name' and found['The'] == found['module'] == 'O'


@pytest.mark.real_data
def test_published_sizes(data_dir, tmp_path):
  for name, sizes in (('wnut17', (3394, 1009, 1287)), ('sst2', (6920, 872, 1821))):
    cfg = pipeline.Config(dataset=name, manual_dir=str(data_dir), cache_dir=str(tmp_path), characters=50)
    made = pipeline.load(cfg)
    assert tuple(made.splits[s].counts['documents'] for s in ('train', 'valid', 'test')) == sizes


def test_conll_2003_labels_are_converted_to_bio(tmp_path):
  text = (
    '-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nUN NNP I-NP B-ORG\nsays VBZ I-VP O\nPeter NNP I-NP I-PER\n'
    'Black NNP I-NP I-PER\nBonn NNP I-NP I-LOC\n\nBIO NN O B-MISC\nis VB O I-MISC\n'
  )
  put(tmp_path, ('eng.train', 'eng.testa', 'eng.testb'), [text] * 3)
  made = read(tmp_path, 'conll2003')
  names = made.manifest['token_label_names']
  found = [names[i] for i in made.splits['train'].token_labels]
  assert found == ['B-ORG', 'B-ORG', 'O', 'B-PER', 'I-PER', 'B-LOC', 'B-MISC', 'I-MISC']
  assert made.splits['train'].offsets.tolist() == [0, 6, 8]
  with pytest.raises(InputError, match='data.manual_dir: got no directory'):
    corpus.load(corpus.Config(dataset='conll2003', tokenizer='words', cache_dir=str(tmp_path)))


NEWS = '-DOCSTART- -X- O O\n\nA X Y O\nb X Y B-LOC\n\nc X Y O\n\n-DOCSTART- -X- O O\n\nD X Y B-PER\n\n'


def test_documents_of_the_files_are_kept_where_rows_have_their_context(tmp_path):
  put(tmp_path, ('eng.train', 'eng.testa', 'eng.testb'), [NEWS, NEWS, NEWS.replace('A X', '-DOCSTART- X')])
  plain = dict(dataset='conll2003', manual_dir=str(tmp_path), cache_dir=str(tmp_path / 'cache'), check_sizes=False)
  plain |= dict(tokenizer='wordpiece', vocab_size=40)
  context = {'batching': {'name': 'tagged', 'form': 'bert', 'context': 'document'}, 'length': 16}
  made = pipeline.load(pipeline.Config(**plain, **context))
  assert made.splits['train'].file_documents.tolist() == [1, 1, 2]
  assert made.splits['test'].file_documents.tolist() == [2, 2, 3]  # a line -DOCSTART- is no word
  assert pipeline.load(pipeline.Config(**plain, **context)).hash == made.hash
  cut = pipeline.Config(**plain, batching={'name': 'tagged', 'form': 'bert'}, length=16)
  other = pipeline.load(cut)
  assert other.splits['train'].file_documents is None and other.dir != made.dir
  np.testing.assert_array_equal(other.splits['train'].tokens, made.splits['train'].tokens)
  put(tmp_path, ('eng.testa',), [NEWS.replace('-DOCSTART- -X- O O\n\n', '')])
  with pytest.raises(InputError, match='data.batching.context: got "document" .* split valid marks no documents'):
    pipeline.load(pipeline.Config(**plain, **context))
  text = '# newdoc id = a\n# sent_id = 1\n1\tDo\tdo\tAUX\n\n1\tgo\tgo\tVERB\n\n# newdoc\n1\tb\tb\tX\n'
  (tmp_path / 'a.conllu').write_text(text)
  assert [one.document for one in tagged.read(str(tmp_path / 'a.conllu'))] == [1, 1, 2]


def test_span_labels_of_every_scheme_become_bio():
  wanted = ['B-x', 'I-x', 'I-x', 'O', 'B-y', 'B-x']
  for labels in (
    ['I-x', 'I-x', 'I-x', 'O', 'I-y', 'I-x'],
    ['B-x', 'I-x', 'I-x', 'O', 'B-y', 'B-x'],
    ['B-x', 'I-x', 'E-x', 'O', 'S-y', 'S-x'],
    ['B-x', 'I-x', 'L-x', 'O', 'U-y', 'U-x'],
  ):
    assert tagged.spans(labels) == wanted, labels
  assert tagged.spans(['NOUN', 'S-x', 'O']) == ['NOUN', 'S-x', 'O']


def labels_of(made, split):
  return [made.manifest['token_label_names'][i] for i in made.split(split).token_labels if i >= 0]


def test_users_sentences_in_columns(tmp_path):
  put(tmp_path, ['train.txt', 'dev.tsv'], ['A O\nb S-x\n\n-DOCSTART- -\n\nC B-y\nd E-y\n', 'A\tI-y\n'])
  made = read(tmp_path, 'tagged_files', hold_out_test=False)
  assert set(made.splits) == {'train', 'valid'}
  assert labels_of(made, 'train') == ['O', 'B-x', 'B-y', 'I-y'] and labels_of(made, 'valid') == ['B-y']


def test_users_sentences_are_held_out_without_a_file(tmp_path):
  put(tmp_path, ['a.conll'], [''.join(f'word{i} NOUN\nruns VERB\n\n' for i in range(400))])
  made = read(tmp_path, 'tagged_files')
  sizes = {split: len(made.split(split).offsets) - 1 for split in ('train', 'valid', 'test')}
  assert sum(sizes.values()) == 400 and all(8 <= sizes[split] <= 40 for split in ('valid', 'test'))
  assert set(made.manifest['token_label_names']) == {'NOUN', 'VERB'}


def test_users_sentences_without_labels_are_rejected(tmp_path):
  put(tmp_path, ['train.conll', 'test.txt'], ['A O\n', 'only words\n\nA\n'])
  with pytest.raises(InputError, match='test.txt, line 3: got 1 columns'):
    read(tmp_path, 'tagged_files')
  (tmp_path / 'test.txt').write_text('A\n')
  with pytest.raises(InputError, match='test.txt, line 1: got words without labels; .*lmx predict'):
    read(tmp_path, 'tagged_files')
  with pytest.raises(InputError, match='data.manual_dir: got none for data set tagged_files'):
    read('', 'tagged_files', cache_dir=str(tmp_path))


def test_parts_of_speech_of_syntactic_words(tmp_path):
  text = "# sent_id = 1\n1-2\tDon't\t_\t_\n1\tDo\tdo\tAUX\n2\tn't\tnot\tPART\n2.1\tgo\tgo\tVERB\n3\t# b\t#\tSYM\n\n"
  put(tmp_path, ('train.conllu', 'dev.conllu', 'test.conllu'), [text] * 3)
  made = read(tmp_path, 'ud_ewt')
  assert made.tokenizer.ids_to_tokens(made.splits['train'].tokens) == ['Do', "n't", '#_b']
  names = made.manifest['token_label_names']
  assert [names[i] for i in made.splits['train'].token_labels] == ['AUX', 'PART', 'SYM']
  put(tmp_path, ('train.conllu',), ['1\tDo\tdo\n'])
  with pytest.raises(InputError, match='train.conllu, line 1: '):
    read(tmp_path, 'ud_ewt')


@pytest.mark.parametrize('kind', ['wordpiece', 'bpe', 'characters'])
def test_first_subword_of_a_word_has_its_label(kind, tmp_path):
  text = 'unbelievable\tB-x\nU.S.\tI-x\nnews\tO\n\nnews\tO\n'
  put(tmp_path, TABLES, [text] * 3)
  size = {'wordpiece': 40, 'bpe': 300}.get(kind, 0)
  made = read(tmp_path, 'wnut17', tokenizer=kind, vocab_size=size)
  split, names = made.splits['train'], made.manifest['token_label_names']
  assert names == ['B-x', 'I-x', 'O']
  labels, tokens = split.token_labels, split.tokens
  words, at = ['unbelievable', 'U.S.', 'news'], 0
  for i, (word, label) in enumerate(zip(words, names, strict=True)):
    ids = made.tokenizer.encode(' ' * (i > 0 and kind != 'wordpiece') + word)
    assert tokens[at : at + len(ids)].tolist() == ids.tolist() and len(ids) > (word != 'news')
    assert labels[at : at + len(ids)].tolist() == [names.index(label)] + [-1] * (len(ids) - 1)
    at += len(ids)
  end = made.tokenizer.eos_id is not None
  assert split.offsets[1] == at + end and (not end or labels[at] == -1)


def sentences_of(path, text):
  path.write_text(text)
  return [[cells for _, cells in words] for words in tagged.sentences(str(path))]


def test_line_has_as_many_columns_as_the_first(tmp_path):
  path = tmp_path / 'train.conll'
  with pytest.raises(InputError, match='train.conll, line 4: got 1 columns'):
    sentences_of(path, 'EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nlonely\n')
  with pytest.raises(InputError, match='line 1: got blanks between columns, but tabs on other lines'):
    path.write_text('a O\n\nb\tO\n')
    list(tagged.read(str(path)))
  with pytest.raises(InputError, match='line 3: got 3 columns'):
    sentences_of(path, 'a O\n\n# b O\nc O\n'.replace('# b', 'b b'))


def test_number_sign_word_is_not_a_comment(tmp_path):
  path = tmp_path / 'train.conll'
  assert sentences_of(path, '# NN O\nb NN O\n') == [[['#', 'NN', 'O'], ['b', 'NN', 'O']]]
  assert sentences_of(path, '# a note\nb O\n\n# another of them\n# O\n') == [[['b', 'O']], [['#', 'O']]]
