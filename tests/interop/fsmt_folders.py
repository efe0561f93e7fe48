"""Folders of FSMT with random weights, and a program with which transformers reads them.

`python -m tests.interop.fsmt_folders PYTHON` writes tests/fixtures/fsmt.json, where PYTHON has transformers 5, torch
and sacremoses. Version 4.57.6 searches otherwise: with its cache every token is at the first position, and without it
the decoder has no causal mask, which one layer does not need.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.numpy

from lmx.interop.huggingface import fsmt as layout
from lmx.models import transformer
from tests.interop import imports, marian_folders
from tests.interop.marian_folders import rounded

FIXTURE = pathlib.Path(__file__).parents[1] / 'fixtures' / 'fsmt.json'
SIZES = marian_folders.SIZES | {'activation': 'relu', 'encoder_layers': 2}
CASES = {
  'separate': {},
  'shared': dict(shared=True, activation='gelu_erf', scale_embedding=False),
  'other ids': dict(shared=True, pad=3, activation='swish', encoder_H=2, encoder_layers=3, seed=3, lower=True),
  'one layer': dict(decoder_layers=1, seed=6),
}
SEARCHES = {
  'as the folder': {},
  'greedy': dict(num_beams=1),
  'beam 3, never': dict(num_beams=3, early_stopping='never', length_penalty=1.7),
  'early': dict(early_stopping=True, length_penalty=0.5),
  'limit': dict(max_length=5),
}
MERGES = [
  't h',
  'th e</w>',
  'a n',
  'an d</w>',
  'e r</w>',
  'l o',
  'lo w',
  'low er</w>',
  '@ -',
  '@- @</w>',
  'i n',
  'in g</w>',
]
LETTERS = sorted({*'abcdefghijklmnopqrstuvwxyzABDEGHTZ0123456789.,;:!?\'"()-/@&#[]|%äöüéσς日本中文'} | {'½', '가', 'ﬁ'})
LINES = ['the lower, and', "it's low - and", 'a-b "the" 日本', 'then lowing']
STRINGS = [
  *LINES,
  'The well-known “lower” man’s dog… isn’t 3,000 % here.',
  '',
  '  two\tspaces\u3000and\u00a0more\u200b\n\r\x85 end',
  '（中文）。 １２．  ３、「日本」；～％！',
  'a@@ b@ @@ @-@ &amp; &apos;s | [x] #',
  'ΟΔΟΣ İ ǅ ß',
  'e\u0301 ﬁ ½ \x00\x07 \ue000 \U0001f600\u200d',
  'lone \ud800 end',
  'a--b — c – d . . . Mr. Smith etc. U.S. 1.5',
  'the</s> lower<pad><unk> <s>man',
  'word " quote "and" ` \'single\' „low“ «fr»',
]


def vocabularies(shared=False, pad=1):
  """Ids as in the releases: special tokens, then the subwords; those of the target are in another order."""
  special = ['<s>', '</s>', '<unk>']
  special.insert(pad, '<pad>')
  special[1 + (pad < 2) : 2 + (pad < 2)] = ['</s>']
  merged = [''.join(line.split()) for line in MERGES]
  words = list(dict.fromkeys([*(c for letter in LETTERS for c in (letter, f'{letter}</w>')), *merged]))
  groups = [words] if shared else [[*words, 'mann</w>'], words[::-1]]
  return [{token: i for i, token in enumerate([*special, *group])} for group in groups]


def made(shared=False, pad=1, seed=4, ends=2.5, scale=1.6, table=0.5, norms=0.3, lower=False, **changes):
  """(Config, tensors, vocabularies) with weights far from their initial values; `ends` scales the row of the end."""
  del lower
  ids = vocabularies(shared, pad)
  sizes = {**SIZES, **layout._MODEL, 'V': len(ids[-1]), 'source_V': 0 if shared else len(ids[0])}
  cfg = transformer.Config(**sizes | {'first_position': pad + 1} | changes)
  rng, tensors = np.random.default_rng(seed), {}
  for entry in layout.entries(cfg):
    for name in entry.names:
      width = table if 'embed' in name else norms if 'layer_norm' in name else scale
      drawn = float('layer_norm.weight' in name) + width * rng.normal(size=entry.shape)
      tensors[name] = drawn.astype(np.float32)
  tensors[layout._DECODER][ids[-1]['</s>']] *= ends  # so that texts end at different lengths
  return cfg, tensors, ids


def save(folder, *, config=None, generation=None, settings=None, files=None, **changes):
  """Write a folder as the releases are; a field that is None is left out, and `files` that are None are."""
  cfg, tensors, ids = made(**changes)
  folder.mkdir()
  end, pad = (ids[-1][token] for token in ('</s>', '<pad>'))
  special = {'pad_token_id': pad, 'eos_token_id': end, 'decoder_start_token_id': end, 'forced_eos_token_id': end}
  own = {'model_type': 'fsmt', 'architectures': ['FSMTForConditionalGeneration'], **layout.config(cfg), **special}
  own |= {'langs': ['en', 'de'], 'num_hidden_layers': cfg.encoder_layers, 'max_length': 12, 'num_beams': 4}
  own |= {'decoder': {'model_type': 'fsmt_decoder', 'bos_token_id': end}}
  options = {'num_beams': 4, 'max_length': 12, 'bad_words_ids': [[pad]], 'length_penalty': 1.1} | special
  lower = changes.get('lower', False)
  tokenizer = {'langs': ['en', 'de'], 'do_lower_case': lower, 'model_max_length': 1024, 'special_tokens_map_file': None}
  for name, content, more in (
    ('config.json', own, config),
    ('generation_config.json', options, generation),
    ('tokenizer_config.json', tokenizer, settings),
  ):
    content = {key: value for key, value in (content | (more or {})).items() if value is not None}
    (folder / name).write_text(json.dumps(content))
  for name, vocabulary in zip(('vocab-src.json', 'vocab-tgt.json'), (ids[0], ids[-1]), strict=True):
    (folder / name).write_text(json.dumps(vocabulary))
  (folder / 'merges.txt').write_text(''.join(f'{line} {99 - i}\n' for i, line in enumerate(MERGES)))
  copies = {tied.name: tensors[tied.source] for tied in layout.tied(cfg)} | layout.constants(cfg)
  safetensors.numpy.save_file(tensors | copies, folder / 'model.safetensors', metadata={'format': 'pt'})
  imports.replace(folder, files)
  return cfg, tensors


PROGRAM = """
import json, sys
import torch, transformers
from transformers import FSMTForConditionalGeneration, FSMTTokenizer
given, folder = json.load(open('given.json')), sys.argv[1]
model, info = FSMTForConditionalGeneration.from_pretrained(folder, output_loading_info=True)
found = {'keys': {name: sorted(info[name]) for name in ('missing_keys', 'unexpected_keys', 'mismatched_keys')}}
model.eval()
tokenizer = FSMTTokenizer.from_pretrained(folder)
names = [f'{folder}/vocab-{side}.json' for side in ('tgt', 'src')]  # the class encodes with the first file alone
other = FSMTTokenizer(tokenizer.init_kwargs['langs'][::-1], *names, f'{folder}/merges.txt',
                      do_lower_case=tokenizer.do_lower_case)
found |= {'ids': [tokenizer(text).input_ids for text in given['strings']], 'searches': {}}
found['target'] = [other(text).input_ids for text in given['strings']]
found['texts'] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in found['target']]
cached = transformers.__version__ >= '5'
if not cached and model.config.decoder_layers > 1:
  given['searches'] = {}
start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
rows = tokenizer(given['lines'], padding=True, return_tensors='pt')
with torch.no_grad():
  first, target = tokenizer(given['lines'][:1], return_tensors='pt'), found['target'][given['target']]
  inputs = torch.tensor([[start, *target[:-1]]])
  found['logits'] = model(**first, decoder_input_ids=inputs, use_cache=False).logits[0, :, ::11].tolist()
  for name, options in given['searches'].items():
    beams = options.get('num_beams', model.generation_config.num_beams)
    kept = dict(num_return_sequences=beams, return_dict_in_generate=True, output_scores=True, use_cache=cached)
    out = model.generate(**rows, **options, **kept)
    sequences = []
    for row in out.sequences[:, 1:].tolist():
      row = row[: row.index(start) + 1] if start in row else [i for i in row if i != pad]
      sequences.append([row, tokenizer.decode(row, skip_special_tokens=True)])
    scores = getattr(out, 'sequences_scores', None)
    found['searches'][name] = [sequences, None if scores is None else scores.tolist()]
json.dump(found, open('found.json', 'w'))
"""


def peer(python, folder, *, strings=STRINGS, lines=LINES, searches=SEARCHES, target=1):
  """What transformers makes of a folder: keys, ids, texts, logits and hypotheses."""
  with tempfile.TemporaryDirectory() as directory:
    given = {'strings': strings, 'lines': lines, 'searches': searches, 'target': target}
    (pathlib.Path(directory) / 'given.json').write_text(json.dumps(given))
    subprocess.run([python, '-c', PROGRAM, str(folder)], cwd=directory, check=True, timeout=580)
    return json.loads((pathlib.Path(directory) / 'found.json').read_text())


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as directory:
    expected = {}
    for case, changes in CASES.items():
      save(pathlib.Path(directory) / case, **changes)
      searches = SEARCHES if case == 'separate' else {}
      expected[case] = rounded(peer(sys.argv[1], pathlib.Path(directory) / case, searches=searches))
    FIXTURE.write_text(json.dumps(expected, ensure_ascii=False) + '\n')
