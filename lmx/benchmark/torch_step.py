"""The same training step in PyTorch, run by another interpreter, for `lmx bench --peer=/path/to/python`.

It imports nothing from lmx. Its interpreter needs torch, and transformers for gpt2, bert, marian and the two
kinds with a memory:
  /path/to/python torch_step.py < requests.jsonl

Protocol: peer_protocol.py's, with these requests.

1. A model, which may be sent again to start over:
   {"kind": "lstm", "V": 10000, "E": 650, "D": 650, "N": 2, "batch": 20, "length": 35, "threads": 2}
   kind        "gpt2" (transformers GPT2LMHeadModel), "bert" (transformers BertForPreTraining), "lstm", "gru",
               "rnn" or "rnn_relu" (embedding, torch.nn layers, output layer with a bias), "awd_lstm" (PyTorch's
               LSTM kernel layer by layer, the last of width E, with the dropouts and penalties of Merity et al. 2018),
               "marian" (transformers MarianMTModel, a Transformer) or "rnnsearch" (torch.nn's GRU in both directions,
               then a GRU cell with attention, Bahdanau et al. 2015); these two read as many source tokens;
               "transformer_xl" (TransfoXLLMHeadModel of transformers before 5) or "xlnet" (XLNetLMHeadModel, a sixth
               of the tokens predicted in a random order), both with a memory
   V, D, N     vocabulary, width, layers; marian: N of the encoder and as many of the decoder
   A, maxout   rnnsearch: widths of the alignment and of the deep output
   E           embedding width of the recurrent kinds (D)
   tied        recurrent kinds: the output matrix is the embedding (false)
   H, F        of Transformers: heads; width of the feed-forward layer (4 D)
   M           transformer_xl, xlnet: memory length; reuse: xlnet: positions of a row that enter the memory
   cutoffs, div_val  transformer_xl: clusters of the vocabulary
   predictions bert: positions predicted per row (15% of the length)
   dropout     rate, of every kind that the model has (0); awd_lstm: the five rates as {"input": 0.4, ...}
   alpha, beta awd_lstm: factors of the two activation penalties
   batch, length   rows and tokens per row
   threads     of PyTorch (2)
   optimizer   "adamw" (default), "adam" or "sgd"
   clip        largest norm of the gradient (1.0)
   Kinds "product" and "copy" are no models: a product of two D x D matrices, a copy of D elements plus 1.
   Answer: {"parameters": count, "torch": version, "threads": n, "tokens": per step}
2. {"steps": k}: runs k steps on random tokens, each the forward pass, loss, backward pass, clipping and update.
   Answer: {"seconds": [k numbers], "loss": of the last step}
   The first steps after a model is built are slower (allocation); discard them.

Settings are PyTorch's fast ones: attention through scaled_dot_product_attention, the optimizer's fused
kernel, clipping with foreach, oneDNN as PyTorch selects it. The recurrent kinds carry their state, detached, across
steps.
"""

from __future__ import annotations

import time
from typing import Any

import peer_protocol

DEFAULTS = {'dropout': 0.0, 'threads': 2, 'optimizer': 'adamw', 'clip': 1.0, 'tied': False}
KINDS = ('gpt2', 'bert', 'lstm', 'gru', 'rnn', 'rnn_relu', 'awd_lstm', 'marian', 'rnnsearch', 'transformer_xl', 'xlnet')
LIMITS = ('product', 'copy')


def _recurrent(spec: Any, torch: Any) -> Any:
  """Build (modules, loss function) of a recurrent language model."""
  nn = torch.nn
  E, D, drop = spec.get('E', spec['D']), spec['D'], spec['dropout']
  layer = {'lstm': nn.LSTM, 'gru': nn.GRU}.get(spec['kind'], nn.RNN)
  extra = {'nonlinearity': 'relu'} if spec['kind'] == 'rnn_relu' else {}
  between = drop if spec['N'] > 1 else 0.0
  body = layer(E, D, num_layers=spec['N'], dropout=between, **extra)
  modules = nn.ModuleDict({'embed': nn.Embedding(spec['V'], E), 'body': body, 'output': nn.Linear(D, spec['V'])})
  if spec['tied']:
    modules['output'].weight = modules['embed'].weight
  for p in modules.parameters():
    nn.init.uniform_(p, -0.05, 0.05)
  state = None

  def loss() -> Any:
    nonlocal state
    tokens_TB = torch.randint(spec['V'], (spec['length'] + 1, spec['batch']))
    x = nn.functional.dropout(modules['embed'](tokens_TB[:-1]), drop)
    y, state = modules['body'](x, state)
    state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
    scores = modules['output'](nn.functional.dropout(y, drop))
    return nn.functional.cross_entropy(scores.view(-1, spec['V']), tokens_TB[1:].reshape(-1))

  return modules, loss


def _awd_lstm(spec: Any, torch: Any) -> Any:
  """Build (modules, loss function) of AWD-LSTM, tied."""
  nn = torch.nn
  V, E, N, rate = spec['V'], spec['E'], spec['N'], spec['dropout']
  widths = [E] + [spec['D']] * (N - 1) + [E]
  layers = [nn.LSTM(a, b) for a, b in zip(widths, widths[1:])]  # noqa: B905 (any Python)
  modules = nn.ModuleDict({'embed': nn.Embedding(V, E), 'layers': nn.ModuleList(layers)})
  modules.register_parameter('bias', nn.Parameter(torch.zeros(V)))
  nn.init.uniform_(modules['embed'].weight, -0.1, 0.1)
  state = [torch.zeros(2, 1, spec['batch'], width) for width in widths[1:]]

  def locked(x: Any, name: str) -> Any:
    return x * nn.functional.dropout(torch.ones(1, *x.shape[1:]), rate[name])

  def loss() -> Any:
    tokens_TB = torch.randint(V, (spec['length'] + 1, spec['batch']))
    table = modules['embed'].weight
    x = nn.functional.embedding(tokens_TB[:-1], table * nn.functional.dropout(torch.ones(V, 1), rate['embedding']))
    x = locked(x, 'input')
    for i, layer in enumerate(layers):
      weights = [
        layer.weight_ih_l0,
        nn.functional.dropout(layer.weight_hh_l0, rate['weight']),
        layer.bias_ih_l0,
        layer.bias_hh_l0,
      ]
      x, h, c = torch._VF.lstm(x, tuple(state[i]), weights, True, 1, 0.0, True, False, False)
      state[i] = torch.stack([h.detach(), c.detach()])
      raw = x
      x = locked(x, 'hidden' if i < N - 1 else 'output')
    scores = nn.functional.linear(x, table, modules.bias)
    total = nn.functional.cross_entropy(scores.view(-1, V), tokens_TB[1:].reshape(-1))
    return total + spec['alpha'] * x.pow(2).mean() + spec['beta'] * (raw[1:] - raw[:-1]).pow(2).mean()

  return modules, loss


def _gpt2(spec: Any, torch: Any) -> Any:
  """Build (model, loss function) of GPT-2."""
  import transformers

  drop = spec['dropout']
  model = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(
      vocab_size=spec['V'],
      n_positions=spec['length'],
      n_embd=spec['D'],
      n_layer=spec['N'],
      n_head=spec['H'],
      n_inner=spec.get('F', 4 * spec['D']),
      resid_pdrop=drop,
      embd_pdrop=drop,
      attn_pdrop=drop,
      use_cache=False,
      attn_implementation='sdpa',
      bos_token_id=0,
      eos_token_id=0,
    )
  )

  def loss() -> Any:
    tokens_BT = torch.randint(spec['V'], (spec['batch'], spec['length'] + 1))
    scores = model(input_ids=tokens_BT[:, :-1]).logits
    return torch.nn.functional.cross_entropy(scores.view(-1, spec['V']), tokens_BT[:, 1:].reshape(-1))

  return model, loss


def _bert(spec: Any, torch: Any) -> Any:
  """Build (model, loss function) of BERT: masked tokens and next sentence."""
  import transformers

  B, T, drop = spec['batch'], spec['length'], spec['dropout']
  P = spec.get('predictions', max(1, round(0.15 * T)))
  model = transformers.BertForPreTraining(
    transformers.BertConfig(
      vocab_size=spec['V'],
      hidden_size=spec['D'],
      num_hidden_layers=spec['N'],
      num_attention_heads=spec['H'],
      intermediate_size=spec.get('F', 4 * spec['D']),
      max_position_embeddings=max(T, 512),
      hidden_dropout_prob=drop,
      attention_probs_dropout_prob=drop,
      attn_implementation='sdpa',
      pad_token_id=0,
    )
  )
  types_BT = (torch.arange(T) >= T // 2).long().expand(B, T)
  mask_BT = torch.ones(B, T, dtype=torch.long)

  def loss() -> Any:
    tokens_BT = torch.randint(spec['V'], (B, T))
    labels_BT = torch.full((B, T), -100).scatter(1, torch.rand(B, T).topk(P).indices, 1)
    labels_BT = torch.where(labels_BT > 0, tokens_BT, labels_BT)
    return model(
      input_ids=tokens_BT,
      token_type_ids=types_BT,
      attention_mask=mask_BT,
      labels=labels_BT,
      next_sentence_label=torch.randint(2, (B,)),
    ).loss

  return model, loss


def _marian(spec: Any, torch: Any) -> Any:
  """Build (model, loss function) of a Transformer for translation."""
  import transformers

  V, D, N, H, F = spec['V'], spec['D'], spec['N'], spec['H'], spec.get('F', 4 * spec['D'])
  model = transformers.MarianMTModel(
    transformers.MarianConfig(
      vocab_size=V,
      decoder_vocab_size=V,
      d_model=D,
      encoder_layers=N,
      decoder_layers=N,
      encoder_attention_heads=H,
      decoder_attention_heads=H,
      encoder_ffn_dim=F,
      decoder_ffn_dim=F,
      activation_function='relu',
      scale_embedding=True,
      max_position_embeddings=spec['length'],
      dropout=spec['dropout'],
      share_encoder_decoder_embeddings=True,
      pad_token_id=V - 1,
      eos_token_id=0,
      decoder_start_token_id=0,
      forced_eos_token_id=None,
      use_cache=False,
      attn_implementation='sdpa',
    )
  )
  mask_BT = torch.ones(spec['batch'], spec['length'], dtype=torch.long)

  def loss() -> Any:
    source_BS = torch.randint(V, mask_BT.shape)
    tokens_BT = torch.randint(V, (spec['batch'], spec['length'] + 1))
    scores = model(input_ids=source_BS, attention_mask=mask_BT, decoder_input_ids=tokens_BT[:, :-1]).logits
    return torch.nn.functional.cross_entropy(scores.view(-1, V), tokens_BT[:, 1:].reshape(-1))

  return model, loss


def _rnnsearch(spec: Any, torch: Any) -> Any:
  """Build (modules, loss function) of the encoder-decoder with additive attention."""
  nn = torch.nn
  V, E, D, A, W = (spec[name] for name in ('V', 'E', 'D', 'A', 'maxout'))
  modules = nn.ModuleDict(
    {
      'source': nn.Embedding(V, E),
      'target': nn.Embedding(V, E),
      'start': nn.Linear(D, D),
      'encoder': nn.GRU(E, D, bidirectional=True, batch_first=True),
      'cell': nn.GRUCell(E + 2 * D, D),
      'query': nn.Linear(D, A, bias=False),
      'key': nn.Linear(2 * D, A),
      'score': nn.Linear(A, 1, bias=False),
      'deep': nn.Linear(3 * D + E, 2 * W),
      'output': nn.Linear(W, V),
    }
  )

  def loss() -> Any:
    shape = (spec['batch'], spec['length'])
    tokens_BT = torch.randint(V, (shape[0], shape[1] + 1))
    h_BSH, last = modules['encoder'](modules['source'](torch.randint(V, shape)))
    s_BD, key_BSA = torch.tanh(modules['start'](last[1])), modules['key'](h_BSH)
    e_BTE = modules['target'](tokens_BT[:, :-1])
    states, contexts = [], []
    for t in range(shape[1]):
      a_BS1 = modules['score'](torch.tanh(modules['query'](s_BD)[:, None] + key_BSA)).softmax(1)
      c_BH = (a_BS1 * h_BSH).sum(1)
      states.append(s_BD)
      contexts.append(c_BH)
      s_BD = modules['cell'](torch.cat([e_BTE[:, t], c_BH], -1), s_BD)
    deep = modules['deep'](torch.cat([torch.stack(states, 1), e_BTE, torch.stack(contexts, 1)], -1))
    scores = modules['output'](deep.unflatten(-1, (W, 2)).amax(-1))
    return nn.functional.cross_entropy(scores.view(-1, V), tokens_BT[:, 1:].reshape(-1))

  return modules, loss


def _transformer_xl(spec: Any, torch: Any) -> Any:
  """Build (model, loss function) of Transformer-XL."""
  from transformers.models.deprecated import transfo_xl

  # transformers 4.57 calls `x.type_as(dtype=...)`, which torch does not support.
  torch.Tensor.type_as = lambda x, other=None, dtype=None: x.to(other.dtype if dtype is None else dtype)
  D, H = spec['D'], spec['H']
  model = transfo_xl.TransfoXLLMHeadModel(
    transfo_xl.TransfoXLConfig(
      vocab_size=spec['V'],
      cutoffs=list(spec['cutoffs']),
      div_val=spec['div_val'],
      d_model=D,
      d_embed=D,
      n_head=H,
      d_head=D // H,
      d_inner=spec['F'],
      n_layer=spec['N'],
      mem_len=spec['M'],
      clamp_len=-1,
      same_length=False,
      dropout=spec['dropout'],
      dropatt=0.0,
      untie_r=False,
    )
  )
  mems = None

  def loss() -> Any:
    nonlocal mems
    tokens_BT = torch.randint(spec['V'], (spec['batch'], spec['length'] + 1))
    hidden, mems = model.transformer(tokens_BT[:, :-1], mems=mems)[:2]
    # Its loss shifts the labels by one, so one position is added before them and one after the outputs.
    return model.crit(torch.cat([hidden, hidden[:, -1:]], 1), tokens_BT).mean()

  return model, loss


def _xlnet(spec: Any, torch: Any) -> Any:
  """Build (model, loss function) of XLNet: both streams, a sixth of the tokens predicted."""
  import transformers

  B, T = spec['batch'], spec['length']
  P = max(1, T // 6)
  model = transformers.XLNetLMHeadModel(
    transformers.XLNetConfig(
      vocab_size=spec['V'],
      d_model=spec['D'],
      n_head=spec['H'],
      n_layer=spec['N'],
      d_inner=spec['F'],
      dropout=spec['dropout'],
      mem_len=spec['M'],
      reuse_len=spec['reuse'] or None,
      use_mems_train=True,
      ff_activation='gelu',
    )
  )
  types_BT = (torch.arange(T) >= T // 2).long().expand(B, T)
  mems = None

  def loss() -> Any:
    nonlocal mems
    tokens_BT, positions_BP = torch.randint(spec['V'], (B, T)), torch.rand(B, T).topk(P).indices
    order_BT = torch.zeros(B, T).scatter(1, positions_BP, torch.arange(1.0, P + 1).expand(B, P))
    reach_BT = torch.where(order_BT > 0, order_BT, order_BT + 1)
    output = model(
      tokens_BT,
      token_type_ids=types_BT,
      perm_mask=(order_BT[:, None] >= reach_BT[:, :, None]).float(),
      target_mapping=torch.nn.functional.one_hot(positions_BP, T).float(),
      mems=mems,
    )
    mems = output.mems
    return torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), tokens_BT.gather(1, positions_BP).flatten())

  return model, loss


def _limit(spec: Any, torch: Any) -> Any:
  """Return a step for a kind of LIMITS, as `build` does."""
  torch.set_num_threads(spec['threads'])
  is_product = spec['kind'] == 'product'
  x = torch.rand((spec['D'],) * (2 if is_product else 1))
  y = torch.empty_like(x)

  def step() -> float:
    torch.matmul(x, x, out=y) if is_product else torch.add(x, 1.0, out=y)
    return float(y.view(-1)[0])

  return step, {'torch': torch.__version__, 'threads': spec['threads']}


def build(spec: Any) -> Any:
  """Return (parameters, function that runs one training step and returns its loss, answer to the request)."""
  import torch

  spec = {**DEFAULTS, **spec}
  if spec['kind'] in LIMITS:
    return _limit(spec, torch)
  if spec['kind'] not in KINDS:
    raise ValueError(f'unknown kind "{spec["kind"]}"; known: {", ".join(KINDS)}')
  torch.set_num_threads(spec['threads'])
  special = {
    'gpt2': _gpt2,
    'bert': _bert,
    'awd_lstm': _awd_lstm,
    'marian': _marian,
    'rnnsearch': _rnnsearch,
    'transformer_xl': _transformer_xl,
    'xlnet': _xlnet,
  }
  model, loss_of = special.get(spec['kind'], _recurrent)(spec, torch)
  model.train()
  weights = list(model.parameters())
  make = {'adamw': torch.optim.AdamW, 'adam': torch.optim.Adam, 'sgd': torch.optim.SGD}[spec['optimizer']]
  optimizer = make(weights, lr=1e-4, fused=True)

  def step() -> Any:
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, spec['clip'], foreach=True)
    optimizer.step()
    return loss.item()

  count = sum(p.numel() for p in weights)
  tokens = spec['batch'] * spec['length']
  return step, {'parameters': count, 'torch': torch.__version__, 'threads': spec['threads'], 'tokens': tokens}


def run(step: Any, request: Any) -> Any:
  """Run training steps; return the answer to the request."""
  seconds, loss = [], None
  for _ in range(request['steps']):
    start = time.perf_counter()
    loss = step()
    seconds.append(time.perf_counter() - start)
  return {'seconds': seconds, 'loss': loss}


if __name__ == '__main__':
  peer_protocol.serve(__doc__, build, run)
