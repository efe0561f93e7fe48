"""Numbered computation rules, so that no run changes its rules half-way.

A fix that changes what a config computes is a `Rule` here. A resolved config lists the rules that it uses by number
under `semantics`; a config written before the fix lists none, which is number 0. A new run gets the current rule. An
older one keeps its own if a setting restores the old rule (`Rule.old`); else it cannot be resumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from lmx.data import datasets, pipeline, sources

Config = Mapping[str, Any]  # a resolved config as a nested dict


@dataclasses.dataclass(frozen=True)
class Rule:
  """Fix that changes what a config computes.

  Attributes:
    fix: description of the change, a sentence without its full stop.
    is_used: predicate: the results of a resolved config depend on the rule.
    old: {'section.key': value}: settings that compute as before the fix; empty if there are none.
    in_evaluation: the rule also changes the evaluation of a trained model.
    on_cpu: it does so on a CPU too.
    number: the current number; 0 is before the fix.
  """

  fix: str
  is_used: Callable[[Config], bool]
  old: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  in_evaluation: bool = True
  on_cpu: bool = True
  number: int = 1


_WITH_PENALTIES = ('bits', 'causal_lm', 'tag', 'translation')  # objectives that always included a model's penalties


def _drops_penalties(model: str) -> Callable[[Config], bool]:
  """Return the predicate: a config trains `model` with an objective that formerly omitted its penalties."""
  return lambda run: run['model']['name'] == model and run['objective']['name'] not in _WITH_PENALTIES


def _other_than_english_german(config: Config) -> bool:
  data = config['data']
  if not config['evaluation']['beam'] or data['dataset'] not in datasets.DATA_SETS:
    return False
  return datasets.DATA_SETS[data['dataset']].languages(data['source'], data['target']) != ('en', 'de')


def _pairs_with_special_tokens(config: Config) -> bool:
  batching = config['data']['batching']
  return batching['name'] == 'texts' and batching['form'] in ('bert', 'xlnet')


def _by_layer(optim: Config) -> bool:
  counts = optim['layer_decay'] != 1 or optim['unfreeze_every'] or optim['stages']
  return bool(counts) and optim['layer_decay_form'].startswith('by_depth')


def _transformer_xl_as_in_tensorflow(config: Config) -> bool:
  return config['model']['name'] == 'transformer_xl' and config['model']['fidelity'] == 'tf'


def _loop_by_numba(config: Config) -> bool:
  model = config['model']
  chosen = model.get('backend') in ('auto', 'numba', 'xla')  # 'auto' becomes one of the others
  return model['name'] in ('awd_lstm', 'rnn_lm') and model['cell'] == 'lstm' and chosen


def _attention_by_numba(config: Config) -> bool:
  model = config['model']
  chosen = model.get('attention') in ('auto', 'numba', 'without_numba')  # 'auto' becomes one of the others
  return chosen and model['name'] not in ('transformer_xl', 'xlnet')  # whose attention is relative


RULES: dict[str, Rule] = {
  'matmul_precision': Rule(
    'float32 products of float32 models have float32 operands on a TPU or GPU, not bfloat16 or TF32',
    lambda config: config['model'].get('dtype', 'float32') == 'float32',
    {'matmul_precision': 'default'},
    on_cpu=False,
  ),
  'activation_penalties': Rule(
    "the loss has the AWD-LSTM's alpha and beta with every objective",
    _drops_penalties('awd_lstm'),
    {'model.alpha': 0.0, 'model.beta': 0.0},
    in_evaluation=False,
  ),
  'mix_l2': Rule(
    "the loss has lambda |w|^2 of ELMo's mixes with every objective",
    _drops_penalties('bilstm'),
    {'model.mix_l2': 0.0},
    in_evaluation=False,
  ),
  'compounds': Rule(
    'the tokenised BLEU splits hyphenated words from English to German alone, not of every pair',
    _other_than_english_german,
    {'evaluation.compounds': 'always'},
  ),
  'unbroken_rows': Rule(
    'segment B of an XLNet row begins elsewhere wherever no sentence ends within the maximum length of segment A',
    lambda config: config['data']['batching']['name'] == 'permutations',
    {'data.batching.unbroken': 'drawn'},
  ),
  'tied_rates': Rule(
    'rates by layer and unfreezing count from the last layer where the output matrix is the embedding',
    lambda config: _by_layer(config['optim']),
    {'optim.layer_decay_form': 'by_depth_of_biases'},
    in_evaluation=False,
  ),
  'transformer_xl_tf': Rule(
    "Transformer-XL with fidelity 'tf' has 1e-12 for the epsilon of layer normalisation, not 1e-5, and zeros for the "
    'initial kernel of its clusters',
    _transformer_xl_as_in_tensorflow,
    {'model.eps': 1e-5},
  ),
  'empty_second': Rule(
    'a pair with an empty second text is read as one text, [CLS] a [SEP] of BERT or a <sep> <cls> of XLNet',
    _pairs_with_special_tokens,
    {'data.batching.empty_second': 'marked'},
  ),
  'packed_rows': Rule(
    "BERT's tasks lay the rows of a training batch end to end on one device, whose dropout masks are others",
    lambda config: config['model']['name'] == 'bert' and config['data']['batching']['name'] == 'texts',
    {'data.batching.packed': False},
    in_evaluation=False,
  ),
  'numba_updates': Rule(
    "where Numba is installed, word2vec's updates on a CPU are one operation, which rounds otherwise",
    lambda config: config['model']['name'] == 'word2vec',
    {'model.update_kernel': 'xla'},
    in_evaluation=False,
  ),
  'numba_loops': Rule(
    "where Numba is installed, an LSTM's loop on a CPU is one operation in training, which rounds otherwise",
    _loop_by_numba,
    {'model.backend': 'xla'},
    in_evaluation=False,
  ),
  'numba_attention': Rule(
    'where Numba is installed, attention on a CPU is one operation in training, which rounds otherwise',
    _attention_by_numba,
    {'model.attention': 'without_numba'},
    in_evaluation=False,
  ),
  'byte_offsets': Rule(
    'byte subwords of a unigram vocabulary have the offsets of their character, not of the whole run of unknown ones, '
    'so that answers in such characters are trained on as they are',
    lambda config: config['data']['batching']['name'] == 'questions' and config['data']['tokenizer'] == 'unigram',
  ),
  'hold_out_test': Rule(
    'test data are held out of the training files where files are named for validation and none for testing',
    lambda config: config['data']['dataset'] in ('text_files', 'parallel_files', 'table_files'),
    {'data.hold_out_test': False},
  ),
  'split_names': Rule(
    "names of the user's files give their split as whole words, and files about the data are not read",
    lambda config: config['data']['dataset'] in sources.NAMED_SPLITS,
    {'data.split_names': 'prefixes'},
  ),
  'label_forms': Rule(
    'labels that differ only in their Unicode form are one class',
    lambda config: (
      config['objective']['name'] == 'classify' and config['data']['dataset'] in pipeline.LABELLED_BY_USERS
    ),
    {'data.label_forms': 'as_written'},
  ),
  'stacked_layers': Rule(
    'layers that model.scan loops over are stored as one tree, so that sums over all gradients round otherwise',
    lambda config: bool(config['model'].get('scan')),
    {'parallel.stack_layers': False},
    in_evaluation=False,
  ),
  'few_shapes': Rule(
    "batches of the user's tables have few lengths if there are few rows",
    lambda config: config['data']['dataset'] == 'table_files' and 'rows_per_bucket' in config['data']['batching'],
    {'data.batching.rows_per_bucket': 0},
    in_evaluation=False,
  ),
  'slanted_triangular': Rule(
    'a slanted triangle of fewer than 1 / cut_fraction updates rises for one update instead of none',
    lambda config: config['optim']['schedule'] == 'slanted_triangular',
    {'optim.min_cut': 0},
    in_evaluation=False,
  ),
  'bfloat16_logits': Rule(
    'the training loss of a bfloat16 model rounds logits to bfloat16 on a GPU',
    lambda config: config['model'].get('dtype') == 'bfloat16',
    {'parallel.logits_dtype': 'float32'},
    in_evaluation=False,
    on_cpu=False,
  ),
  'plateau_score': Rule(
    'a plateau follows the score that train.best_by names, not the loss',
    lambda config: config['optim']['schedule'] == 'plateau' and config['train']['best_by'] != 'loss',
    {'optim.plateau_by': 'loss'},
    in_evaluation=False,
  ),
}


def rule_numbers(config: Config, saved: Mapping[str, int] | None = None) -> dict[str, int]:
  """Return rule -> number for the rules that `config` uses: the current numbers, or those of a `saved` config."""
  number = lambda name, rule: rule.number if saved is None else int(saved.get(name) or 0)
  return {name: number(name, rule) for name, rule in sorted(RULES.items()) if rule.is_used(config)}


def earlier_rules(config: Config) -> dict[str, Rule]:
  """Return the rules whose number in a resolved `config` is earlier than the current one."""
  return {name: RULES[name] for name, number in config['semantics'].items() if number < RULES[name].number}


def old_settings(config: Config) -> dict[str, Any]:
  """Return {'section.key': value}: settings that keep the earlier rules of a resolved `config`."""
  return {key: value for rule in earlier_rules(config).values() for key, value in rule.old.items()}


def fixed_since(config: Config) -> list[str]:
  """Return the fixes made after a resolved `config` was written that no setting undoes."""
  return [rule.fix for rule in earlier_rules(config).values() if not rule.old]


def evaluation_notes(config: Config, platform: str) -> list[str]:
  """Return a line for each earlier rule of a resolved `config` that its evaluation on a `platform` depends on.

  Args:
    config: the resolved config.
    platform: 'cpu', 'gpu' or 'tpu'.
  """
  which = lambda rule: 'its own, from before the fix' if rule.old else 'the current one, not that of its training'
  decides = lambda rule: rule.in_evaluation and (rule.on_cpu or platform != 'cpu')
  return [
    f'rule "{name}" is {which(rule)} ({rule.fix})' for name, rule in earlier_rules(config).items() if decides(rule)
  ]


# Settings that earlier versions had not, with the value that computes as they did: it is no part of a digest.
_LATER: dict[str, Any] = {
  **dict.fromkeys((f'semantics.{rule}' for rule in ('bfloat16_logits', 'few_shapes', 'label_forms', 'packed_rows')), 0),
  **dict.fromkeys((f'semantics.{rule}' for rule in ('plateau_score', 'split_names')), 0),
  **dict.fromkeys((f'semantics.{rule}' for rule in ('numba_attention', 'numba_loops', 'numba_updates')), 0),
  'data.batching.context': 'sentence',
  'data.batching.documents': '',
  'data.batching.drawn': 0,
  'data.batching.packed': False,
  'data.batching.pad_id': -1,
  'data.batching.rows_per_bucket': 0,
  'data.batching.truncation': 'released',
  'data.column': 'text',
  'data.fold': 0,
  'data.row_parts': False,
  'data.split_names': 'words',
  'data.target_vocab_size': 0,
  'data.vocabularies': 'shared',
  'data.words': 0,
  'model.class_mass': 'root',
  'model.class_starts': [],
  'model.classes': 0,
  'model.input': 'embedding',
  'model.update_kernel': 'xla',
  'objective.base': 0,
  'objective.eps': 1e-12,
  'objective.reduction': 'tokens',
  'objective.sum_ends': False,
  'objective.window': 0,
  'optim.max_reductions': 0,
  'optim.restore_best': False,
  'optim.stop_lr': 0.0,
  'optim.threshold': 0.0,
  'samples.every': 0,
  'train.best_by': 'loss',
  'train.patience_form': 'best',
  'train.ties': 'earlier',
}
_SOURCE = {'model.source_V': 0}  # the Transformer had it before
_LATER_OF: dict[str, dict[str, Any]] = {
  **dict.fromkeys(('bahdanau', 'luong', 'quaternion_transformer', 'rnn_encdec'), _SOURCE),
  'bidaf': {
    'model.dropout_characters': 0.0,
    'model.highways': 0,
    'model.initial': 'pytorch',
    'model.locked': True,
    'model.passage_dropout': True,
  },
  **dict.fromkeys(('bert', 'xlnet'), {'model.eps': 1e-12}),
  'gpt': {'model.eps': 1e-5},
  'transformer_xl': {'model.tied': True},
  'gpt2': {'model.bias': True, 'model.eps': 1e-5},
}
# Rule -> setting that only runs under this rule have in their digest.
_RULED = {
  'label_forms': 'data.label_forms',
  'plateau_score': 'optim.plateau_by',
  'split_names': 'data.split_names',
}


def in_digest(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Return the part of flat settings that a digest is of, so that digests of earlier versions stay valid.

  Args:
    settings: {'section.key': value} of every setting that changes what is computed.
  """
  computed = dict(settings)
  if computed.get('model.remat') in ('none', 'full'):  # false and true in earlier versions, whose digests stay valid
    computed['model.remat'] = computed['model.remat'] == 'full'
  if not computed.get('data.vectors'):  # earlier versions had none, and their digests stay valid
    computed = {k: v for k, v in computed.items() if k not in ('data.vectors', 'data.other_rows')}
  if computed.get('optim.schedule') != 'poly':  # nor this one
    computed.pop('optim.power', None)
  for rule, key in _RULED.items():
    if not computed.get(f'semantics.{rule}'):  # it does not apply, or is that of earlier versions
      computed.pop(key, None)
  later = _LATER | _LATER_OF.get(str(computed.get('model.name')), {})
  computed = {k: v for k, v in computed.items() if k not in later or v != later[k]}
  for key, value in (('model.attention', 'without_numba'), ('model.backend', 'xla')):  # "auto" in earlier versions
    if computed.get(key) == value:
      computed[key] = 'auto'
  return computed
