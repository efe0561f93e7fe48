"""Pipelines of transformers on exported folders, without options: the labels, probabilities and tokens of lmx."""

from __future__ import annotations

import json
import shutil

import pytest

import lmx
from lmx.runs import convert
from tests.interop.transformers_test import HEADS, folders, heads, texts  # noqa: F401

transformers = pytest.importorskip('transformers')
pytestmark = pytest.mark.peer

ROWS = ['The method returns a list of names', 'a string', 'it is: returned, 3,5 times.']
PAIRS = [('The method', 'returns a list of names'), ('a string', 'of names'), ('it', 'is: returned')]


def exported(folder, tmp_path, *settings):
  """Return (the imported run, its exported folder)."""
  convert.import_run(str(folder), tmp_path / 'run', settings)
  convert.export_run(tmp_path / 'run', tmp_path / 'out')
  return lmx.load(tmp_path / 'run'), str(tmp_path / 'out')


@pytest.mark.parametrize('size', [1, 3])
@pytest.mark.parametrize('case', ['classification', 'gpt2_classification', 'regression'])
def test_texts_are_classified_as_by_lmx(case, size, heads, tmp_path):  # noqa: F811
  run, out = exported(heads[case], tmp_path)
  found = transformers.pipeline('text-classification', model=out)(ROWS, top_k=None, batch_size=size)
  for row, expected in zip(found, run.predict(ROWS), strict=True):
    if case == 'regression':
      assert row[0]['score'] == pytest.approx(expected['score'], abs=1e-5)
    else:
      scores = {one['label']: one['score'] for one in row}
      assert scores == pytest.approx(expected['probabilities'], abs=1e-5)


def test_pairs_are_classified_as_by_lmx(heads, tmp_path):  # noqa: F811
  run, out = exported(heads['classification'], tmp_path, "data.texts=('one','two')")
  classify = transformers.pipeline('text-classification', model=out)
  for (one, two), expected in zip(PAIRS, run.predict(PAIRS), strict=True):
    found = classify({'text': one, 'text_pair': two}, top_k=None)
    assert {row['label']: row['score'] for row in found} == pytest.approx(expected['probabilities'], abs=1e-5)


def test_words_are_tagged_as_by_lmx(heads, tmp_path):  # noqa: F811
  run, out = exported(heads['tagging'], tmp_path)
  tag = transformers.pipeline('token-classification', model=out)
  for row, expected in zip(ROWS[:2], run.predict(ROWS[:2]), strict=True):
    found = {one['start']: one['entity'] for one in tag(row, ignore_labels=[])}
    assert [found[row.index(word)] for word in expected['tokens']] == list(expected['tags'])


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_texts_are_continued_as_by_lmx(name, folders, tmp_path):  # noqa: F811
  run, out = exported(folders[name], tmp_path)
  write = transformers.pipeline('text-generation', model=out)
  found = write('a string', max_new_tokens=8, do_sample=False, return_tensors=True)[0]['generated_token_ids']
  given = run.tokenizer.encode('a string').tolist()
  tokens = run.tokenizer.encode(run.generate('a string', tokens=8, greedy=True, past_eos=True)[0]).tolist()
  assert found[: len(given)] == given and run.tokenizer.decode(found) == run.tokenizer.decode(tokens)


@pytest.mark.parametrize('size', [1, 2])
def test_settings_of_the_folder_are_those_of_the_pipeline(size, folders, tmp_path):  # noqa: F811
  """Version 4 has its own do_sample and 256 new tokens, which exceed the 32 positions of this model."""
  shutil.copytree(folders['gpt2'], tmp_path / 'folder')
  settings = {'max_new_tokens': 8, 'no_repeat_ngram_size': 2, 'pad_token_id': 0}
  (tmp_path / 'folder' / 'generation_config.json').write_text(json.dumps(settings))
  run, out = exported(tmp_path / 'folder', tmp_path)
  rows = ['a string', 'The method']
  found = transformers.pipeline('text-generation', model=out)(rows, batch_size=size)
  assert [one[0]['generated_text'] for one in found] == [run.generate(row)[0] for row in rows]
