"""The training of a language model imports what its config names, and no other part."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import walk_length

IMPORTS = """
import sys
from lmx import objectives, train
from lmx.data import batching
from lmx.data.builders import prose
from lmx.models import registry
registry.get('gpt2'), objectives.get('causal_lm'), batching.get('windows')
print(*(name for name in sys.modules if name.startswith('lmx.')))
"""
OTHERS = (
  *('lmx.interop', 'lmx.prediction', 'lmx.cli', 'lmx.data.image_corpus', 'lmx.data.builders.segmentation'),
  *('lmx.data.builders.questions', 'lmx.data.builders.propositions', 'lmx.interop.fasttext'),
  *('lmx.data.tokenizers.marian', 'lmx.data.tokenizers.moses', 'lmx.data.tokenizers.sentencepiece'),
  *('lmx.decoding.beam_search', 'lmx.decoding.translate', 'lmx.metrics.translation', 'lmx.metrics.squad'),
  *('lmx.kernels.rnn', 'lmx.kernels.relative_attention', 'lmx.ops.rnn', 'lmx.ops.relative_attention'),
  *('lmx.data.builders.tables', 'lmx.data.builders.parallel', 'lmx.data.builders.cloze', 'lmx.metrics.ngram'),
  *('lmx.runs.backbone', 'lmx.runs.word_table', 'lmx.runs.transfer', 'lmx.metrics.embeddings'),
)


def test_training_gpt2_imports_no_part_of_other_tasks():
  done = subprocess.run(
    [sys.executable, '-c', IMPORTS], capture_output=True, text=True, check=True, cwd=walk_length.ROOT
  )
  imported = done.stdout.split()
  assert 'lmx.models.gpt2' in imported
  assert [name for name in imported if f'{name}.'.startswith(tuple(f'{other}.' for other in OTHERS))] == []


@pytest.mark.slow
def test_walk_stays_within_its_bounds(tmp_path):
  found = walk_length.walk(tmp_path)
  assert len(found['entered']) <= walk_length.ENTERED and len(found['imported']) <= walk_length.IMPORTED
