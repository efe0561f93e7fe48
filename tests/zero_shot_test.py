"""A run is measured on data that it was not trained on: figures against the restatement, through the command line."""

from __future__ import annotations

import gzip
import itertools
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import lmx
from lmx import objectives
from lmx.cli import main
from lmx.data import corpus as corpora
from lmx.data import detokenize, stop_words
from lmx.data.tokenizers import build
from lmx.errors import InputError, InputWarning
from lmx.interop import huggingface
from lmx.models import registry
from tests.interop import imports
from tests.reference import transformer, zero_shot

CONFIG = 'experiments/gpt2/zero_shot.py'
WORDS = 'the cat of a house saw that man and he was in it when she went to find the old dog by day'.split()
PTB = [" the man was n't in the $ N house ", " a <unk> 's cat saw the dog and it went ", ' he was old ']
T = 24


def sentence(rng, size):
  return ' '.join(rng.choice(WORDS, size))


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A tiny random GPT-2 as an imported run; its figures are no figures of chance alone, as its weights are large."""
  folder = tmp_path_factory.mktemp('gpt2')
  rng = np.random.default_rng(0)
  tokenizer = build.train('bpe', [sentence(rng, 30) for _ in range(50)], vocab_size=330)
  model = registry.get('gpt2')
  cfg = model.Config(V=tokenizer.vocab_size, T=T, D=8, H=2, N=2)
  leaves, tree = jax.tree.flatten(jax.eval_shape(lambda: model.init(cfg, jax.random.key(1))))
  large = [(0.5 * rng.standard_normal(x.shape)).astype(np.float32) for x in leaves]
  params = {'model': tree.unflatten(large), 'objective': {}}
  words = [tokenizer.decode([i]) in [f' {word}' for word in WORDS] for i in range(cfg.V)]
  params['model']['embed']['tokens'] *= np.where(words, 1, 0.1)[:, None].astype(np.float32)  # words are what it says
  (folder / 'config.json').write_text(json.dumps({'model_type': 'gpt2', **huggingface.family('gpt2').config(cfg)}))
  safetensors.numpy.save_file(huggingface.to_hf('gpt2', cfg, params), folder / 'model.safetensors')
  imports.save_tokenizer(tokenizer, folder)
  assert main.main(['import', f'--from={folder}', f'--workdir={folder}/run']) == 0
  return lmx.load(folder / 'run')


@pytest.fixture(scope='module')
def scores(run):
  """Scores of the next token after every one of a list, by the restatement."""
  exact = jax.tree.map(lambda x: np.asarray(x, np.float64), run.params['model'])
  return lambda tokens: transformer.gpt2(exact, np.asarray(tokens), np.ones(len(tokens), bool))


def measured(run, arg, folder, *options):
  """The record that `lmx evaluate` writes."""
  words = [f'--workdir={run.workdir}', f'--config={CONFIG}:{arg}', f'--output={folder}/figures.json']
  data = [f'manual_dir={folder}', f'cache_dir={folder}/cache', 'check_sizes=False', f'length={T}', 'batch_size=8']
  code = main.main(['evaluate', *words, *(f'--config.data.{text}' for text in data), *options])
  return json.loads((folder / 'figures.json').read_text()) if code == 0 else code


def test_perplexity_per_word_counts_original_words(run, scores, tmp_path):
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'ptb.{split}.txt').write_text('\n'.join(PTB) + '\n')
  found = measured(run, 'ptb,stride=8', tmp_path)
  text = detokenize.detokenize(detokenize.RULES['ptb'], '\n'.join(PTB) + '\n')
  assert text.startswith("the man wasn't in the $N house\na <unk>'s cat")
  ids = [int(i) for i in run.tokenizer.encode(text)]
  nll = zero_shot.windows(scores, ids, T, 8)  # the end-of-text id at the end is not predicted
  words = len(' '.join(PTB).split()) + 3
  assert found['tokens_counted'] == len(ids) - 1 and found['name'] == 'gpt2_zero_shot_ptb' and found['split'] == 'test'
  np.testing.assert_allclose(found['perplexity_per_word'], np.exp(nll / words), rtol=1e-5)
  np.testing.assert_allclose(found['perplexity_per_token'], np.exp(nll / (len(ids) - 1)), rtol=1e-5)
  assert found['bits_per_character'] == pytest.approx(nll / np.log(2) / len('\n'.join(PTB) + '\n'), rel=1e-5)
  assert 'detokenised, counted by the units of the original' in found['protocol'] and 'baselines' not in found


def test_last_words_matches_reference(run, scores, tmp_path):
  """Among them words that are predicted with and without the filter, and words of several pieces."""
  rng, texts = np.random.default_rng(1), []
  stops = stop_words.token_ids(run.tokenizer)
  for n in range(100):
    context = sentence(rng, 4)
    ranked = np.argsort(-scores([int(i) for i in run.tokenizer.encode(context)])[-1])
    best = next(i for i in ranked if n % 2 or i not in stops)  # what is predicted, or what is with the filter
    word = run.tokenizer.decode([int(best)])
    single = word.startswith(' ') and word.strip().isalpha() and n % 5
    texts.append(context + (word if single else ' catdog'))
  (tmp_path / 'lambada_test.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts))
  encode = lambda text: [int(i) for i in run.tokenizer.encode(text)]
  rows = [(encode(context), encode(' ' + word)) for context, word in (text.rsplit(' ', 1) for text in texts)]
  ppl, right, filtered = zero_shot.last_words(lambda tokens: scores(tokens)[-1], rows, stops)
  found = measured(run, 'lambada', tmp_path)
  np.testing.assert_allclose(found['perplexity_of_last_word'], ppl, rtol=1e-4)
  assert (found['accuracy'], found['filtered_accuracy']) == pytest.approx((right, filtered))
  assert 0 < right < filtered < 1 and found['unit'] == 'words' and found['tokens_counted'] == len(texts)
  assert any(len(word) > 1 for _, word in rows)


def test_answers_of_the_childrens_book_test_matches_reference(run, scores, tmp_path):
  rng, questions = np.random.default_rng(2), ''
  for _ in range(12):
    lines = [f'{n} {sentence(rng, 2)} .' for n in range(1, 21)]
    lines.append(f'21 {sentence(rng, 2)} XXXXX saw it .\tcat\t\t' + '|'.join(rng.permutation(['cat', *WORDS[4:13]])))
    questions += '\n'.join(lines) + '\n\n'
  (tmp_path / 'cbtest_V_valid_2000ex.txt').write_text(questions)
  with pytest.warns(InputWarning, match='12 of 12 rows of split valid'):
    found = measured(run, 'cbt_v', tmp_path)
  corpus = corpora.load(
    corpora.Config(
      dataset='cbt/v',
      tokenizer='bpe',
      tokenizer_path=str(run.workdir / 'tokenizer'),
      manual_dir=str(tmp_path),
      check_sizes=False,
      cache_dir=str(tmp_path / 'cache'),
      detokenize=True,
    )
  )
  split, best, right, loss = corpus.splits['valid'], [], [], []
  parts = [[int(i) for i in split.tokens[a : b - 1]] for a, b in itertools.pairwise(split.offsets)]
  for i in range(0, len(parts), 12):  # a context that leaves no room loses its beginning
    rows = [(parts[i][-(T + 1 - len(end)) :], end) for end in parts[i + 2 : i + 12]]
    scores_G = np.array([zero_shot.of_end(lambda ids: scores(ids)[-1], *row)[0] for row in rows])
    label = int(corpus.manifest['label_names'][split.labels[i]])
    best.append(int(np.argmax(scores_G)))
    right.append(best[-1] == label)
    loss.append(-zero_shot.log_softmax(scores_G)[label])
  assert found['accuracy'] == pytest.approx(np.mean(right)) and found['loss'] == pytest.approx(np.mean(loss), rel=1e-4)
  assert found['split'] == 'valid' and found['unit'] == 'questions' and len(set(best)) > 1


def test_undefined_metrics_name_their_reason(run, tmp_path, capsys):
  assert measured(run, 'lambada', tmp_path) == 2
  assert 'expected lambada_test.jsonl' in capsys.readouterr().err
  (tmp_path / 'lambada_test.jsonl').write_text(json.dumps({'text': 'the ' + 'cat' * 30}) + '\n')
  assert measured(run, 'lambada', tmp_path) == 2
  assert f'data.length is {T}; increase it' in capsys.readouterr().err
  assert measured(run, 'lambada', tmp_path, '--config.data.length=1024') == 2
  assert 'expected at most model.T=24 positions' in capsys.readouterr().err
  assert measured(run, 'lambda', tmp_path) == 2
  assert 'did you mean "lambada"' in capsys.readouterr().err


def test_model_that_sees_the_end_is_rejected():
  bert, objective = registry.get('bert'), objectives.get('last_word')
  cfg = registry.config('bert', 'tiny')
  batch = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), objective.shapes(objective.Config(), 2, 8))
  with pytest.raises(InputError, match='model.name: got bert'):
    objective.loss(objective.Config(), bert, cfg, {'model': {}}, batch, ())


@pytest.mark.peer
def test_transformers_finds_the_same_in_windows_over_penn_treebank(run, data_dir, tmp_path):
  torch, transformers_lib = pytest.importorskip('torch'), pytest.importorskip('transformers')
  with gzip.open(data_dir / 'lm/ptb/test.txt.gz', 'rt') as file:
    text = ''.join(itertools.islice(file, 12))
  for split in ('train', 'valid', 'test'):
    (tmp_path / f'ptb.{split}.txt').write_text(text)
  found = measured(run, 'ptb,stride=7', tmp_path)
  model = transformers_lib.GPT2LMHeadModel.from_pretrained(run.workdir.parent).eval()

  def scores_of_all(window):
    with torch.no_grad():
      return model(torch.tensor([window])).logits[0].numpy().astype(np.float64)

  ids = [int(i) for i in run.tokenizer.encode(detokenize.detokenize(detokenize.RULES['ptb'], text))]
  nll = zero_shot.windows(scores_of_all, ids, T, 7)
  assert found['loss'] * found['tokens_counted'] == pytest.approx(nll, rel=1e-4)
