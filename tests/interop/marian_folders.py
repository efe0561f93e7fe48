"""Folders of Marian with random weights, and a program with which transformers reads them.

The models of SentencePiece in tests/fixtures/marian were trained by its library on 1,500 lines of Multi30k, with a
character map of their own and, of the target, two symbols of the user. `python -m tests.interop.marian_folders PYTHON`
writes expected.json beside them, where PYTHON has transformers, torch and sentencepiece.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.numpy

from lmx.data.tokenizers import sentencepiece
from lmx.interop.huggingface import transformer as layout
from lmx.models import transformer
from tests.interop import imports

FIXTURES = pathlib.Path(__file__).parents[1] / 'fixtures' / 'marian'
SIZES = dict(D=16, F=20, H=2, encoder_F=24, encoder_H=4, encoder_layers=1, decoder_layers=2, activation='swish')
CASES = {
  'shared': {},
  'separate': dict(separate=True, activation='gelu_erf'),
  'untied': dict(tied=False, scale_embedding=False, activation='relu', encoder_H=2, seed=3, ends=3.0),
}
SEARCHES = {
  'beam 4': {},
  'greedy': dict(num_beams=1),
  'beam 6, never, forced first': dict(
    num_beams=6, early_stopping='never', length_penalty=2.0, forced_bos_token_id=9, renormalize_logits=False
  ),
  'beam 6': dict(num_beams=6),
  'no penalty': dict(length_penalty=0.0),
  'power 0.6, early': dict(length_penalty=0.6, early_stopping=True),
  'limit': dict(max_length=5),
  'limit, not renormalised': dict(max_length=5, renormalize_logits=False),
  'no forced end': dict(max_length=5, forced_eos_token_id=None),
  'bad words': dict(bad_words_ids=[[3], [186], [205]], renormalize_logits=False),
}
LINES = ['A dog.', '>>fra<< a man', 'a 日本 ﬁ…', 'on the']  # at most 8 tokens, so that a search compiles one program
STRINGS = [
  *LINES,
  'A dog runs.',
  'Two young men are outside near a bush',
  'The ﬁne ﬁnish … 日本 of A\u030a①',
  '',
  ' ',
  '  two\tspaces \u3000 and\u00a0more\u200b \n',
  'ﬁn ﬁnal ﬁ',
  'e\u0301e\u0301 Å Å ǆ',
  'ab日本語cd 日 本',
  '▁a ▁ b▁',
  'a<br>b <b> <bx <br/>',
  '>>deu<< Zwei >>fra<< Hunde',
  '>>deu Zwei',
  '>> a << b',
  '\ud800 lone',
  '😀👨‍👩‍👧 \U0001d400',
  '\x00\x01 a\x7f',
  "``quoted'' “so” „so“",
  'a dog</s> <pad><unk>runs <s> </S>',
  '</s>>>fra<< <unk> a man',
  'unbekanntes Wort: Xylophonspieler, 1234 １２',
]


def vocabularies(separate=False, codes=('>>fra<<', '>>deu<<')):
  """Ids as in opus-mt: `</s>`, `<unk>`, the subwords of both languages, `<pad>`."""
  sides = [sentencepiece.parse((FIXTURES / name).read_bytes(), name).pieces for name in ('source.spm', 'target.spm')]
  names = [[piece.piece for piece in pieces if piece.piece not in ('<unk>', '<s>', '</s>')] for pieces in sides]
  groups = names if separate else [list(dict.fromkeys(names[0] + names[1]))]
  words = [['</s>', '<unk>', *group, *([] if separate else codes), '<pad>'] for group in groups]
  return [{word: i for i, word in enumerate(group)} for group in words]


def made(separate=False, seed=2, ends=5.0, scale=0.8, table=0.2, padded=0.0, **changes):
  """(Config, parameters, vocabularies) with weights far from their initial values.

  `ends` scales the row of the end; `padded` is added to the bias of rows beyond the vocabulary, of which V has some.
  """
  ids = vocabularies(separate)
  sizes = {**SIZES, **layout._MODEL, 'V': len(ids[-1]), 'source_V': len(ids[0]) if separate else 0} | changes
  cfg = transformer.Config(**sizes)
  rng = np.random.default_rng(seed)
  tensors = {}
  for entry in layout.entries(cfg):
    for name in entry.names:
      width = table if 'shared' in name or 'embed_tokens' in name or 'lm_head' in name else scale
      drawn = float('layer_norm.weight' in name) + width * rng.normal(size=entry.shape)
      tensors[name] = drawn.astype(np.float32)
  tensors[layout._tables(cfg)[1]][0] *= ends  # so that texts end at different lengths
  tensors['final_logits_bias'][:, len(ids[-1]) :] += padded
  return cfg, tensors, ids


def save(folder, *, config=None, generation=None, settings=None, files=None, **changes):
  """Write a folder; a field that is None is left out, and `files` that are None are."""
  cfg, tensors, ids = made(**changes)
  folder.mkdir()
  pad = ids[-1]['<pad>']
  special = {'pad_token_id': pad, 'eos_token_id': 0, 'decoder_start_token_id': pad, 'forced_eos_token_id': 0}
  own = {'model_type': 'marian', 'architectures': ['MarianMTModel'], **layout.config(cfg), **special}
  options = {'num_beams': 4, 'max_length': 24, 'bad_words_ids': [[pad]], 'renormalize_logits': True} | special
  tokenizer = {'source_lang': 'en', 'target_lang': 'de', 'separate_vocabs': len(ids) > 1, 'model_max_length': 512}
  for name, content, more in (
    ('config.json', own, config),
    ('generation_config.json', options, generation),
    ('tokenizer_config.json', tokenizer, settings),
  ):
    content = {key: value for key, value in (content | (more or {})).items() if value is not None}
    (folder / name).write_text(json.dumps(content))
  for name, vocabulary in zip(('vocab.json', 'target_vocab.json'), ids, strict=False):
    (folder / name).write_text(json.dumps(vocabulary))
  for name in ('source.spm', 'target.spm'):
    shutil.copy(FIXTURES / name, folder / name)
  # transformers 5 does not tie the tables of the two sides either where the output is not tied.
  copies = {} if cfg.tied else {tied.name: tensors[tied.source] for tied in layout.tied(cfg)}
  safetensors.numpy.save_file(tensors | copies, folder / 'model.safetensors', metadata={'format': 'pt'})
  imports.replace(folder, files)
  return cfg, tensors


PROGRAM = """
import json, sys
import torch
from transformers import MarianMTModel, MarianTokenizer
given = json.load(open('given.json'))
model, tokenizer = MarianMTModel.from_pretrained(sys.argv[1]).eval(), MarianTokenizer.from_pretrained(sys.argv[1])
strings = [text.encode('utf-8', 'replace').decode() if text.isascii() else text.replace(chr(0xd800), chr(0xfffd))
           for text in given['strings']]
found = {'ids': [tokenizer(text).input_ids for text in strings], 'searches': {}}
found['target'] = [tokenizer(text_target=text).input_ids for text in strings]
found['texts'] = [tokenizer.decode(ids, skip_special_tokens=True) for ids in found['target']]
start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
rows = tokenizer(given['lines'], padding=True, return_tensors='pt')
with torch.no_grad():
  first, target = tokenizer(given['lines'][:1], return_tensors='pt'), tokenizer(text_target=given['lines'][1]).input_ids
  found['logits'] = model(**first, decoder_input_ids=torch.tensor([[start, *target[:-1]]])).logits[0, :, ::11].tolist()
  for name, options in given['searches'].items():
    beams = options.get('num_beams', model.generation_config.num_beams)
    if 'forced_eos_token_id' in options:
      model.generation_config.forced_eos_token_id = options['forced_eos_token_id']
    kept = dict(num_return_sequences=beams, return_dict_in_generate=True, output_scores=True)
    out = model.generate(**rows, **options, **kept)
    model.generation_config.forced_eos_token_id = 0
    sequences = []
    for row in out.sequences[:, 1:].tolist():
      row = row[: row.index(0) + 1] if 0 in row else [i for i in row if i != pad]
      sequences.append([row, tokenizer.decode(row, skip_special_tokens=True)])
    scores = getattr(out, 'sequences_scores', None)
    found['searches'][name] = [sequences, None if scores is None else scores.tolist()]
json.dump(found, open('found.json', 'w'))
"""


def peer(python, folder, *, strings=STRINGS, lines=LINES, searches=SEARCHES):
  """What transformers makes of a folder: ids, texts, logits and hypotheses."""
  with tempfile.TemporaryDirectory() as directory:
    given = {'strings': strings, 'lines': lines, 'searches': searches}
    (pathlib.Path(directory) / 'given.json').write_text(json.dumps(given))
    subprocess.run([python, '-c', PROGRAM, str(folder)], cwd=directory, check=True, timeout=580)
    return json.loads((pathlib.Path(directory) / 'found.json').read_text())


def rounded(found):
  return json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 6))


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as directory:
    expected = {}
    for case, changes in CASES.items():
      save(pathlib.Path(directory) / case, **changes)
      expected[case] = rounded(
        peer(sys.argv[1], pathlib.Path(directory) / case, searches=SEARCHES if case == 'shared' else {})
      )
    (FIXTURES / 'expected.json').write_text(json.dumps(expected, ensure_ascii=False) + '\n')
