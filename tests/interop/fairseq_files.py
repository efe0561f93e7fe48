"""Checkpoints of fairseq with random weights, and a program with which FSMT of transformers computes the same model.

FSMTForConditionalGeneration is a copy of fairseq's TransformerModel for its WMT19 releases. `python -m
tests.interop.fairseq_files PYTHON` writes tests/fixtures/fairseq.json, where PYTHON has transformers and torch.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from tests.interop import torch_files

FIXTURE = pathlib.Path(__file__).parents[1] / 'fixtures' / 'fairseq.json'
WORDS = [f'w{i}' for i in range(37)]
D, LAYERS = 8, {'encoder': 2, 'decoder': 1}
F, HEADS = {'encoder': 12, 'decoder': 10}, {'encoder': 4, 'decoder': 2}
SOURCE, TARGET = [7, 30, 12, 5, 2], [9, 9, 33, 4, 17, 2]
CASES = {
  'stacked, of 2018': dict(stacked=True, shared=True),
  'apart, two dictionaries': dict(more=11, activation='gelu'),
  'untied': dict(tied=False, stacked=True),
}


def tensors(stacked=False, shared=False, tied=True, more=0, before=False, seed=0, activation='relu'):
  """The state dict of a TransformerModel; `more` words are of the source alone."""
  del activation
  rng = np.random.default_rng(seed)
  draw = lambda *shape: (0.4 * rng.normal(size=shape)).astype(np.float32)
  V = len(WORDS) + 4
  tables = {'encoder': draw(V + more, D), 'decoder': draw(V, D)}
  if shared:
    tables['encoder'] = tables['decoder']
  found = {f'{side}.embed_tokens.weight': table for side, table in tables.items()}
  for side in ('encoder', 'decoder'):
    found[f'{side}.version'] = np.asarray([3.0], np.float32)
    found[f'{side}.embed_positions._float_tensor'] = np.zeros(1, np.float32)
    for i in range(LAYERS[side]):
      at = f'{side}.layers.{i}'
      attentions = ['self_attn'] + ['encoder_attn'] * (side == 'decoder')
      for attention in attentions:
        if stacked:
          found |= {f'{at}.{attention}.in_proj_weight': draw(3 * D, D), f'{at}.{attention}.in_proj_bias': draw(3 * D)}
        for part in ('out_proj',) if stacked else ('q_proj', 'k_proj', 'v_proj', 'out_proj'):
          found |= {f'{at}.{attention}.{part}.weight': draw(D, D), f'{at}.{attention}.{part}.bias': draw(D)}
      found |= {f'{at}.fc1.weight': draw(F[side], D), f'{at}.fc1.bias': draw(F[side])}
      found |= {f'{at}.fc2.weight': draw(D, F[side]), f'{at}.fc2.bias': draw(D)}
      for j, name in enumerate([f'{attention}_layer_norm' for attention in attentions] + ['final_layer_norm']):
        name = f'layer_norms.{j}' if stacked else name
        found |= {f'{at}.{name}.weight': 1 + draw(D), f'{at}.{name}.bias': draw(D)}
    if before:
      found |= {f'{side}.layer_norm.weight': 1 + draw(D), f'{side}.layer_norm.bias': draw(D)}
  if not tied:
    found['decoder.embed_out'] = draw(V, D)
  elif not stacked:
    found['decoder.output_projection.weight'] = tables['decoder']
  return found


def options(shared=False, tied=True, before=False, activation='relu', **given):
  """The Namespace of a checkpoint, with some of the options that training adds to it."""
  del given
  sizes = {f'{side}_{name}': value[side] for side in F for name, value in
           (('ffn_embed_dim', F), ('attention_heads', HEADS), ('layers', LAYERS))}  # fmt: skip
  return {
    **sizes,
    'arch': 'transformer_wmt_en_de',
    'task': 'translation',
    'source_lang': 'en',
    'target_lang': 'de',
    'data': '/checkpoint/data',
    'lr': [0.0007],
    'encoder_embed_dim': D,
    'decoder_embed_dim': D,
    'encoder_learned_pos': False,
    'decoder_learned_pos': False,
    'encoder_normalize_before': before,
    'decoder_normalize_before': before,
    'share_all_embeddings': shared,
    'share_decoder_input_output_embed': tied,
    'adaptive_softmax_cutoff': None,
    'activation_fn': activation,
    'dropout': 0.3,
    'attention_dropout': 0.1,
    'relu_dropout': 0.05,
    'left_pad_source': 'True',
  }


def save(folder, *, changes=None, content=None, dictionaries=None, codes=None, **case):
  """Write a release; an option in `changes` that is None is left out."""
  folder.mkdir()
  given = {name: value for name, value in (options(**case) | (changes or {})).items() if value is not None}
  model = tensors(**case) if content is None else content
  namespace = argparse.Namespace(**given)
  torch_files.save(folder / 'model.pt', {'args': namespace, 'model': model, 'optimizer_history': [], 'extra_state': {}})
  own = {'de': WORDS, 'en': WORDS + [f's{i}' for i in range(case.get('more', 0))]} | (dictionaries or {})
  for language, words in own.items():
    (folder / f'dict.{language}.txt').write_text(''.join(f'{word} {99 - i}\n' for i, word in enumerate(words)))
  if codes is not None:
    (folder / 'bpecodes').write_text(codes)
  return model


PROGRAM = """
import json
import numpy as np, torch
from transformers import FSMTConfig, FSMTForConditionalGeneration
given = json.load(open('given.json'))
state = {name: torch.tensor(np.asarray(x, np.float32)) for name, x in np.load('state.npz').items()}
sizes = {name: given['options'][name] for name in given['options'] if name.endswith(('_layers', '_attention_heads'))}
sizes |= {f'{side}_ffn_dim': given['options'][f'{side}_ffn_embed_dim'] for side in ('encoder', 'decoder')}
config = FSMTConfig(
  d_model=given['options']['encoder_embed_dim'], activation_function=given['options']['activation_fn'],
  src_vocab_size=len(state['encoder.embed_tokens.weight']), tgt_vocab_size=len(state['decoder.embed_tokens.weight']),
  max_position_embeddings=64, tie_word_embeddings=False, **sizes)
model = FSMTForConditionalGeneration(config).eval()
named = {}
for name, x in state.items():
  if name.endswith(('version', '_float_tensor')):
    continue
  side = name.split('.')[0]
  for i, new in enumerate(['self_attn', 'encoder_attn'][: 1 + (side == 'decoder')] + ['final']):
    name = name.replace(f'layer_norms.{i}', f'{new}_layer_norm')
  name = name.replace('embed_out', 'output_projection.weight')
  parts = zip('qkv', x.chunk(3)) if 'in_proj' in name else [('', x)]
  for part, value in parts:
    named['model.' + (name.replace('in_proj_', f'{part}_proj.') if part else name)] = value
named.setdefault('model.decoder.output_projection.weight', state['decoder.embed_tokens.weight'])
output = model.model.decoder.output_projection
output.weight = torch.nn.Parameter(output.weight.detach().clone())  # FSMT ties it to the table
missing, unexpected = model.load_state_dict(named, strict=False)
assert not unexpected and all('embed_positions' in name for name in missing), (missing, unexpected)
with torch.no_grad():
  source, target = torch.tensor([given['source']]), torch.tensor([[2, *given['target'][:-1]]])
  found = {'logits': model(input_ids=source, decoder_input_ids=target, use_cache=False).logits[0].tolist()}
  search = dict(num_beams=5, num_return_sequences=5, early_stopping=True, max_length=12, bad_words_ids=[[1]])
  out = model.generate(input_ids=source, use_cache=False, forced_eos_token_id=None, return_dict_in_generate=True,
                       output_scores=True, **search)
  rows = [row[: row.index(2) + 1] if 2 in row else [i for i in row if i != 1] for row in out.sequences[:, 1:].tolist()]
  found |= {'sequences': rows, 'scores': out.sequences_scores.tolist()}
json.dump(found, open('found.json', 'w'))
"""


def peer(python, case):
  """Logits and hypotheses of FSMT."""
  with tempfile.TemporaryDirectory() as directory:
    given = {'options': options(**CASES[case]), 'source': SOURCE, 'target': TARGET}
    (pathlib.Path(directory) / 'given.json').write_text(json.dumps(given))
    np.savez(pathlib.Path(directory) / 'state.npz', **tensors(**CASES[case]))
    subprocess.run([python, '-c', PROGRAM], cwd=directory, check=True, timeout=580)
    return json.loads((pathlib.Path(directory) / 'found.json').read_text())


if __name__ == '__main__':
  found = {case: peer(sys.argv[1], case) for case in CASES}
  FIXTURE.write_text(json.dumps(json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 6))) + '\n')
