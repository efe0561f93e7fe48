"""transformers classes that are read and written: an lmx model with an objective, and linear layers on top.

Each class computes the same as lmx if the objective's config equals `Head.fixed_objective`. Other fields without a
counterpart only affect training or decoding: the standard deviation of initial weights, an auxiliary language model,
dropout that a class lacks, and tag sequences constrained to a scheme (`objective.constrained`).

  class                                             objective             input of the layers
  BertForSequenceClassification                     classify, regress     the pooler's vector
  BertForMultipleChoice                             multiple_choice       the pooler's vector of each choice separately
  BertForTokenClassification                        tag                   each subword
  BertForQuestionAnswering                          span                  each subword, start and end logits
  OpenAIGPT-, GPT2ForSequenceClassification         classify, regress     the last token; it has no bias
  OpenAIGPT-, GPT2DoubleHeadsModel                  multiple_choice       the last token of each choice separately
  XLNetForSequenceClassification                    classify, regress     the last token, two layers
  XLNetForMultipleChoice                            multiple_choice       the last token of each choice separately
  XLNetForTokenClassification                       tag                   each subword
  XLNetForQuestionAnsweringSimple                   span                  each subword, start and end logits
  XLNetForQuestionAnswering                         span, head 'xlnet'    each subword, ends given their start
  MarianMTModel, FSMTForConditionalGeneration       translation           none, each token of the translation

`HEADS` also has the classes without a head of pre-training, which are written if that head was neither read nor
trained. A GPT model read as DoubleHeads has the auxiliary loss with lambda = 0.5 (Radford et al. 2018, section 4.1),
which the files do not contain. BertForMaskedLM is BERT without a next-sentence head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lmx.errors import InputError, nearest
from lmx.interop.huggingface import xlnet
from lmx.interop.huggingface.entry import (
  Entry,
  Tensors,
  check_value,
  epsilon,
  integer,
  norm,
  rate,
  same,
  show,
  transposed,
)

PROBLEMS = {'classify': 'single_label_classification', 'regress': 'regression'}
LABELS = 100_000  # largest number of labels of a class
LM_WEIGHT = 0.5  # Radford et al. 2018, section 4.1


class Inner(NamedTuple):
  """A further layer of a head, with the model's width.

  Attributes:
    path: its path in the parameters of lmx.
    name: name of its tensors.
    inputs: input size of a linear layer, in widths of the model; 0 is a layer normalisation.
    outputs: output size, in widths of the model; 0 is a single output.
    bias: True if it has a bias.
  """

  path: str
  name: str
  inputs: int
  outputs: int = 1
  bias: bool = True


class Head(NamedTuple):
  """A class of transformers.

  Attributes:
    model: the family; usually named like the lmx model.
    objectives: supported objectives; of two, the first classifies and the second predicts a score.
    layer: name of the linear layer's tensors, '' if the class has none.
    path: the layer's path in the parameters of lmx.
    bias: True if it has a bias.
    outputs: number of outputs of the layer; 0 is one per label.
    inner: the other layers of the head.
    groups: optional parts of a model file (`Entry.group`) that the class has.
    spare: those of them that the class itself lacks, written only if they were read from files.
    tied: True if the class has the language model's output matrix.
    dropout: field of the objective -> its name in config.json.
    integers: field of the objective -> (its name in config.json, its default there).
    epsilons: the same for epsilons of layer normalisation.
    fixed_objective: field of the objective -> value with which both compute the same.
    fixed_config: field of config.json -> value with which both compute the same; it is the default there.
    written_config: further fields of config.json that are written.
    read_defaults: further fields of the objective that are set when reading.
  """

  model: str
  objectives: tuple[str, ...]
  layer: str = ''
  path: str = 'objective/block_0'
  bias: bool = True
  outputs: int = 0
  inner: tuple[Inner, ...] = ()
  groups: tuple[str, ...] = ()
  spare: tuple[str, ...] = ()
  tied: bool = False
  dropout: Mapping[str, str] = {}
  integers: Mapping[str, tuple[str, int]] = {}
  epsilons: Mapping[str, tuple[str, float]] = {}
  fixed_objective: Mapping[str, Any] = {}
  fixed_config: Mapping[str, Any] = {}
  written_config: Mapping[str, Any] = {}
  read_defaults: Mapping[str, Any] = {}


_LINEAR = {'head': (), 'normalize': False, 'head_bias': True}
_POOLED = _LINEAR | {'pooling': 'pooled'}
_LAST = _LINEAR | {'pooling': 'last'}
_ROW = {'bptt': 0, 'init_std': 0.02}
_SUMMARY = {
  'summary_type': 'cls_index',
  'summary_use_proj': True,
  'summary_activation': None,
  'summary_proj_to_labels': True,
}
_TAGGED = {'crf': False}
_XLNET = _LAST | {'head': (0,), 'activation': 'tanh', 'dropout_pooled': 0.0}
# No memory is returned: its batch is the second axis, so pipelines could not separate the rows of a batch.
_NO_MEMORY = {'use_mems_eval': False}
_XLNET_SUMMARY = {'summary_type': 'last', 'summary_use_proj': True, 'summary_activation': 'tanh'}


def _sequence_head(model: str) -> Head:
  return Head(
    model,
    ('classify', 'regress'),
    'score',
    bias=False,
    fixed_objective=_LAST | {'head_bias': False},
    read_defaults=_ROW | {'dropout_pooled': 0.0},
  )


def _double_heads(model: str) -> Head:
  return Head(
    model,
    ('multiple_choice',),
    'multiple_choice_head.summary',
    outputs=1,
    groups=('output',),
    tied=True,
    dropout={'dropout_pooled': 'summary_first_dropout'},
    fixed_objective=_LAST,
    fixed_config=_SUMMARY,
    read_defaults=_ROW | {'lm_weight': LM_WEIGHT},
  )


def _xlnet_head(*objectives: str, outputs: int = 0) -> Head:
  return Head(
    'xlnet',
    objectives,
    'logits_proj',
    'objective/block_1',
    outputs=outputs,
    inner=(Inner('objective/block_0', 'sequence_summary.summary', 1),),
    dropout={'dropout_head': 'summary_last_dropout'},
    fixed_objective=_XLNET,
    fixed_config=_XLNET_SUMMARY,
    written_config=_NO_MEMORY,
    read_defaults=_ROW,
  )


HEADS = {
  'BertForPreTraining': Head(
    'bert', ('masked_lm',), groups=('pooler', 'mlm', 'nsp'), tied=True, fixed_objective={'next_sentence': True}
  ),
  'BertForMaskedLM': Head(
    'bert',
    ('masked_lm',),
    groups=('pooler', 'mlm'),
    spare=('pooler',),
    tied=True,
    fixed_objective={'next_sentence': False},
  ),
  'BertForNextSentencePrediction': Head('bert', (), groups=('pooler', 'nsp')),
  'BertModel': Head('bert', (), groups=('pooler',)),
  'BertForSequenceClassification': Head(
    'bert',
    ('classify', 'regress'),
    'classifier',
    groups=('pooler',),
    dropout={'dropout_pooled': 'classifier_dropout'},
    fixed_objective=_POOLED,
    fixed_config={'is_decoder': False},
    read_defaults=_ROW,
  ),
  'BertForMultipleChoice': Head(
    'bert',
    ('multiple_choice',),
    'classifier',
    outputs=1,
    groups=('pooler',),
    dropout={'dropout_pooled': 'classifier_dropout'},
    fixed_objective=_POOLED,
    fixed_config={'is_decoder': False},
    read_defaults=_ROW,
  ),
  'BertForTokenClassification': Head(
    'bert',
    ('tag',),
    'classifier',
    'objective',
    dropout={'dropout': 'classifier_dropout'},
    fixed_objective=_TAGGED,
    read_defaults={'constrained': False, 'init_std': 0.02},
  ),
  'BertForQuestionAnswering': Head(
    'bert', ('span',), 'qa_outputs', 'objective', outputs=2, fixed_objective={'head': 'bert'}
  ),
  'OpenAIGPTLMHeadModel': Head('gpt', ('causal_lm',), groups=('output',), tied=True),
  'OpenAIGPTModel': Head('gpt', ()),
  'OpenAIGPTDoubleHeadsModel': _double_heads('gpt'),
  'OpenAIGPTForSequenceClassification': _sequence_head('gpt'),
  'GPT2LMHeadModel': Head('gpt2', ('causal_lm',), groups=('output',), tied=True),
  'GPT2Model': Head('gpt2', ()),
  'GPT2DoubleHeadsModel': _double_heads('gpt2'),
  'GPT2ForSequenceClassification': _sequence_head('gpt2'),
  'TransfoXLLMHeadModel': Head('transformer_xl', ('causal_lm',), tied=True),
  'XLNetLMHeadModel': Head('xlnet', ('permutation_lm',), groups=('output',), tied=True),
  'XLNetForSequenceClassification': _xlnet_head('classify', 'regress'),
  'XLNetForMultipleChoice': _xlnet_head('multiple_choice', outputs=1),
  'XLNetForTokenClassification': Head(
    'xlnet',
    ('tag',),
    'classifier',
    'objective',
    written_config=_NO_MEMORY,
    fixed_objective=_TAGGED,
    read_defaults={'constrained': False, 'init_std': 0.02, 'dropout': 0.0},
  ),
  'XLNetForQuestionAnsweringSimple': Head(
    'xlnet',
    ('span',),
    'qa_outputs',
    'objective',
    outputs=2,
    written_config=_NO_MEMORY,
    fixed_objective={'head': 'bert'},
  ),
  'XLNetForQuestionAnswering': Head(
    'xlnet',
    ('span',),
    'start_logits.dense',
    'objective/begin',
    outputs=1,
    inner=(
      Inner('objective/end_in', 'end_logits.dense_0', 2),
      Inner('objective/end_norm', 'end_logits.LayerNorm', 0),
      Inner('objective/end_out', 'end_logits.dense_1', 1, 0),
      Inner('objective/none_in', 'answer_class.dense_0', 2),
      Inner('objective/none_out', 'answer_class.dense_1', 1, 0, bias=False),
    ),
    integers={'begins': ('start_n_top', 5), 'ends': ('end_n_top', 5)},
    epsilons={'eps': xlnet.EPS},
    written_config=_NO_MEMORY,
    fixed_objective={'head': 'xlnet'},
  ),
  'MarianMTModel': Head('transformer', ('translation',), groups=('output',), tied=True),
  'FSMTForConditionalGeneration': Head('fsmt', ('translation',), tied=True),
}
# Files of the class on the left may lack tensors of the class on the right, or have more.
_READ_AS = {
  'BertModel': 'BertForPreTraining',
  'BertForMaskedLM': 'BertForPreTraining',
  'BertForNextSentencePrediction': 'BertForPreTraining',
  'OpenAIGPTModel': 'OpenAIGPTLMHeadModel',
  'GPT2Model': 'GPT2LMHeadModel',
  'XLNetModel': 'XLNetLMHeadModel',
  'MarianModel': 'MarianMTModel',
  'FSMTModel': 'FSMTForConditionalGeneration',
}
# Class, and a part of its files (`Entry.group`) -> the class without this part.
_WITHOUT = {
  ('BertForPreTraining', 'mlm'): 'BertForNextSentencePrediction',
  ('BertForMaskedLM', 'mlm'): 'BertModel',
  ('OpenAIGPTLMHeadModel', 'output'): 'OpenAIGPTModel',
  ('GPT2LMHeadModel', 'output'): 'GPT2Model',
}


def recognise(model: str, theirs: Mapping[str, Any], tensors: Tensors) -> str:
  """Return the class of a file: one named in config.json, else the one whose layer is among the tensors.

  Of several names it is the first whose layer the tensors have.

  Args:
    model: the family.
    theirs: content of config.json.
    tensors: tensors under the names of the file.

  Raises:
    InputError: the class is not supported, or none is named and several match these tensors.
  """
  own = [name for name, head in HEADS.items() if head.model == model]
  named = theirs['architectures'] if theirs.get('architectures') else []
  if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
    raise InputError(f'config.json: architectures: got {show(named)}; expected a list of names')
  read_as = [read for name in named if (read := _READ_AS.get(name, name)) in own]
  if read_as:
    return next((name for name in read_as if not HEADS[name].layer or _fits(HEADS[name], tensors)), read_as[0])
  if named:
    known = sorted({*own, *(name for name, read in _READ_AS.items() if read in own)})
    raise InputError(f'config.json: architectures: unknown {", ".join(named)}{nearest(named[0], known)}')
  fits = [name for name in own if HEADS[name].layer and _fits(HEADS[name], tensors)]
  if len(fits) > 1:
    raise InputError(
      f'config.json: architectures: missing; expected {" or ".join(fits)}, which both have '
      f'{HEADS[fits[0]].layer}.weight; set it, such as "architectures": ["{fits[0]}"]'
    )
  return fits[0] if fits else own[0]


def _fits(head: Head, tensors: Tensors) -> bool:
  """Return True if the layer and its inputs exist, with a number of outputs that the class allows."""
  weight = f'{head.layer}.weight'
  pooler = any('pooler.' in name for name in tensors)
  matches = weight in tensors and head.outputs in (0, tensors[weight].shape[0])
  return matches and (pooler or 'pooler' not in head.groups)


def labels(name: str, theirs: Mapping[str, Any]) -> tuple[str, ...]:
  """Return a class's label names from config.json, ordered by id; () if it has no labels.

  Raises:
    InputError: ids of labels are not 0, 1, 2, ..., a label has no name, or two have the same name.
  """
  if not HEADS[name].layer or HEADS[name].outputs:
    return ()
  named = theirs['id2label'] if theirs.get('id2label') else {}
  if not named:
    count = integer(theirs, 'num_labels', default=2, high=LABELS)
    return tuple(f'LABEL_{i}' for i in range(count))  # default names and number in transformers
  if not isinstance(named, Mapping):
    raise InputError(f'config.json: id2label: got {show(named)}; expected an object such as {{"0": "no", "1": "yes"}}')
  for key, label in named.items():
    if isinstance(label, bool) or not isinstance(label, (str, int, float)):
      raise InputError(f'config.json: id2label: got {show(label)} for label {key}; expected a name')
  label_names = {str(key): str(label) for key, label in named.items()}
  ids = [str(i) for i in range(len(label_names))]
  if sorted(label_names) != sorted(ids) or len(set(label_names.values())) < len(label_names):
    raise InputError(
      f'config.json: id2label: got {show(named)}; expected different names for labels 0 to {len(label_names) - 1}'
    )
  return tuple(label_names[key] for key in ids)


def objective(name: str, theirs: Mapping[str, Any]) -> dict[str, Any]:
  """Return the `objective` section from config.json, except the number of labels; {} leaves it to the model.

  Raises:
    InputError: the class is used in a way that lmx does not support, such as multi-label classification.
  """
  head, names = HEADS[name], labels(name, theirs)
  if not head.layer:
    return {}
  for field, value in head.fixed_config.items():
    check_value(theirs, field, value)
  chosen = head.objectives[0]
  if head.objectives == tuple(PROBLEMS):
    chosen = 'regress' if len(names) == 1 else 'classify'
    check_value(theirs, 'problem_type', None, PROBLEMS[chosen])
  settings = {'name': chosen, **head.read_defaults, **head.fixed_objective}
  for ours, field in head.dropout.items():
    settings[ours] = rate(theirs, field if theirs.get(field) is not None else 'hidden_dropout_prob', 0.1)
  settings |= {ours: integer(theirs, *given) for ours, given in head.integers.items()}
  settings |= {ours: epsilon(theirs, *given) for ours, given in head.epsilons.items()}
  return settings | ({'metric': 'accuracy'} if chosen == 'classify' else {})


class Task(NamedTuple):
  """Task that an lmx run was trained on.

  Attributes:
    objective: name of the objective.
    cfg: Config of the objective.
    labels: names of the labels, () if there are none.
  """

  objective: str
  cfg: Any
  labels: Sequence[str] = ()


def choose(model: str, task: Task) -> str:
  """Return the class that computes the same as an lmx model; raise InputError with the differences if there is none."""
  own = {name: head for name, head in HEADS.items() if head.model == model}
  fits = [name for name, head in own.items() if task.objective in head.objectives]
  if not fits:
    supported = sorted({objective for head in own.values() for objective in head.objectives})
    raise InputError(
      f'objective: got "{task.objective}", which no transformers class supports with {model}; expected one of '
      f'{", ".join(supported)}'
    )
  differ = {name: _differences(own[name].fixed_objective, task.cfg) for name in fits}
  for name, differences in differ.items():
    if not differences:
      return name
  name, differences = next(iter(differ.items()))
  raise InputError(f'{name} of transformers computes differently: {"; ".join(differences)}')


def _differences(fixed_objective: Mapping[str, Any], cfg: Any) -> list[str]:
  return [
    f'objective.{field}: got {getattr(cfg, field)!r}; expected {value!r}'
    for field, value in fixed_objective.items()
    if getattr(cfg, field) != value
  ]


def config(name: str, task: Task) -> dict[str, Any]:
  """Return the class-specific fields of config.json."""
  head = HEADS[name]
  fields = dict(head.dropout) | {ours: field for ours, (field, _) in (*head.integers.items(), *head.epsilons.items())}
  settings: dict[str, Any] = {field: getattr(task.cfg, ours) for ours, field in fields.items()}
  settings |= {**head.fixed_config, **head.written_config}
  if task.objective in PROBLEMS:
    settings['problem_type'] = PROBLEMS[task.objective]
  if head.layer and not head.outputs:
    names = list(task.labels) or ['LABEL_0']
    settings['id2label'] = {str(i): label for i, label in enumerate(names)}
    settings['label2id'] = {label: i for i, label in enumerate(names)}
  return settings


def entries(name: str, body: Iterable[Entry], width: int, outputs: int) -> list[Entry]:
  """Return the entries of a class's files; model parts that the class does not use are optional.

  Args:
    name: name of the class.
    body: entries of the model.
    width: D of the model.
    outputs: number of labels, for a class that has labels.
  """
  head = HEADS[name]
  if not head.layer:
    return list(body)
  parameters = [entry for entry in body if entry.path[0] == 'model']
  parameters = [entry._replace(group='') if entry.group in head.groups else entry for entry in parameters]
  rows = head.outputs or outputs
  for inner in head.inner:
    parameters += _inner_entries(inner, width)
  parameters.append(transposed(f'{head.path}/kernel', f'{head.layer}.weight', rows, width))
  return parameters + ([same(f'{head.path}/bias', f'{head.layer}.bias', rows)] if head.bias else [])


def _inner_entries(inner: Inner, width: int) -> list[Entry]:
  if not inner.inputs:
    return norm(inner.path, inner.name, width)
  rows = inner.outputs * width or 1
  parameters = [transposed(f'{inner.path}/kernel', f'{inner.name}.weight', rows, inner.inputs * width)]
  return parameters + ([same(f'{inner.path}/bias', f'{inner.name}.bias', rows)] if inner.bias else [])


def other_heads(name: str, body: Iterable[Entry]) -> dict[str, str]:
  """Return {name of a layer: its class} of the heads of the model's classes; the class `name` may share some."""
  head = HEADS[name]
  layers = {
    layer: other
    for other, one in HEADS.items()
    if one.model == head.model
    for layer in (one.layer, *(inner.name for inner in one.inner))
  }
  if head.layer:  # the objective's part of the model's files
    pretrained = next(other for other, one in HEADS.items() if one.model == head.model)
    objective = [entry for entry in body if entry.path[0] != 'model']
    layers |= {name.rpartition('.')[0]: pretrained for entry in objective for name in entry.names}
  return {layer: other for layer, other in layers.items() if layer}


def without(name: str, groups: Iterable[str]) -> str:
  """Return the class that lacks one of these parts (`Entry.group`), '' if there is none."""
  return next((small for group in groups if (small := _WITHOUT.get((name, group)))), '')


def class_entries(name: str, entries: Iterable[Entry]) -> list[Entry]:
  """Return the entries that the class has."""
  return [entry for entry in entries if not entry.group or entry.group in HEADS[name].groups]
