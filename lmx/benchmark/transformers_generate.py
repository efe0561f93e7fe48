"""Generation by transformers, run by another interpreter, for `lmx bench --preset=generate_...` and `beam_4`.

It imports nothing from lmx; its interpreter needs torch and transformers. Protocol: peer_protocol.py's, with these
requests.

1. A model with random weights:
   {"kind": "gpt2", "V": 50257, "T": 1024, "D": 768, "H": 12, "N": 12, "batch": 8, "length": 32, "threads": 2}
   {"kind": "marian", "V": 58101, "D": 512, "F": 2048, "H": 8, "N": 6, "lengths": [20, 28], "beams": 4, "threads": 2}
   gpt2     continues `batch` prompts of `length` tokens greedily
   marian   translates a sentence of each length by beam search
   Answer: {"parameters": count, "torch": version, "transformers": version, "threads": n}
2. {"tokens": k}: generates k tokens per row, with a key/value cache, without end-of-text.
   Answer: {"seconds": of all of them}
"""

from __future__ import annotations

import time
from typing import Any

import peer_protocol


def _gpt2(spec: Any, torch: Any, transformers: Any) -> Any:
  """Return (model, inputs, options of `generate`)."""
  config = transformers.GPT2Config(
    vocab_size=spec['V'],
    n_positions=spec['T'],
    n_embd=spec['D'],
    n_head=spec['H'],
    n_layer=spec['N'],
    attn_implementation='sdpa',
    bos_token_id=None,
    eos_token_id=None,
  )
  ids = torch.randint(1, spec['V'], (spec['batch'], spec['length']))
  inputs = {'input_ids': ids, 'attention_mask': torch.ones_like(ids)}
  return transformers.GPT2LMHeadModel(config), inputs, {'do_sample': False, 'pad_token_id': 0}


def _marian(spec: Any, torch: Any, transformers: Any) -> Any:
  """Return (model, inputs, options of `generate`)."""
  V, N, H, F = (spec[name] for name in ('V', 'N', 'H', 'F'))
  config = transformers.MarianConfig(
    vocab_size=V,
    decoder_vocab_size=V,
    d_model=spec['D'],
    encoder_layers=N,
    decoder_layers=N,
    encoder_attention_heads=H,
    decoder_attention_heads=H,
    encoder_ffn_dim=F,
    decoder_ffn_dim=F,
    activation_function='swish',
    scale_embedding=True,
    max_position_embeddings=512,
    share_encoder_decoder_embeddings=True,
    pad_token_id=V - 1,
    eos_token_id=0,
    decoder_start_token_id=V - 1,
    forced_eos_token_id=None,
    attn_implementation='sdpa',
  )
  lengths = torch.tensor(spec['lengths'])
  mask = (torch.arange(max(spec['lengths'])) < lengths[:, None]).long()
  ids = torch.where(mask > 0, torch.randint(1, V - 1, mask.shape), V - 1)
  options = {'num_beams': spec['beams'], 'do_sample': False, 'bad_words_ids': [[V - 1]]}
  return transformers.MarianMTModel(config), {'input_ids': ids, 'attention_mask': mask}, options


def build(spec: Any) -> Any:
  """Return (function that generates so many tokens and returns the seconds, answer to the request)."""
  import torch
  import transformers

  kinds = {'gpt2': _gpt2, 'marian': _marian}
  if spec['kind'] not in kinds:
    raise ValueError(f'unknown kind "{spec["kind"]}"; known: {", ".join(kinds)}')
  torch.set_num_threads(spec['threads'])
  model, inputs, options = kinds[spec['kind']](spec, torch, transformers)
  model.eval()

  def generate(tokens: int) -> float:
    start = time.perf_counter()
    with torch.inference_mode():
      found = model.generate(**inputs, **options, min_new_tokens=tokens, max_new_tokens=tokens, use_cache=True)
    seconds = time.perf_counter() - start
    before = 1 if spec['kind'] == 'marian' else inputs['input_ids'].shape[1]
    if found.shape[1] != before + tokens:
      raise RuntimeError(f'generated {found.shape[1] - before} tokens of {tokens}')
    return seconds

  about = {'torch': torch.__version__, 'transformers': transformers.__version__, 'threads': spec['threads']}
  return generate, {'parameters': sum(p.numel() for p in model.parameters()), **about}


def run(generate: Any, request: Any) -> Any:
  """Generate tokens; return the answer to the request."""
  return {'seconds': generate(request['tokens'])}


if __name__ == '__main__':
  peer_protocol.serve(__doc__, build, run)
