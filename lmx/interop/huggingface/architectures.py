"""The classes of transformers that are read and written: a model of lmx with an objective, and linear layers on top.

Each computes what lmx does where the objective's config is as `Head.alike` says. What else the class has no word for
concerns training or decoding alone: deviations of initial weights, an auxiliary language model, dropout that a class
does not have, and labels of words that are held to a scheme (`objective.constrained`).

  class                                             objective             the layers read
  BertForSequenceClassification                     classify, regress     the pooler's vector
  BertForMultipleChoice                             multiple_choice       the pooler's vector, of each choice by itself
  BertForTokenClassification                        tag                   each piece
  BertForQuestionAnswering                          span                  each piece, scores of begin and end
  OpenAIGPT-, GPT2ForSequenceClassification         classify, regress     the last token; it has no bias
  OpenAIGPT-, GPT2DoubleHeadsModel                  multiple_choice       the last token, of each choice by itself
  XLNetForSequenceClassification                    classify, regress     the last token, two layers
  XLNetForMultipleChoice                            multiple_choice       the last token, of each choice by itself
  XLNetForTokenClassification                       tag                   each piece
  XLNetForQuestionAnsweringSimple                   span                  each piece, scores of begin and end
  XLNetForQuestionAnswering                         span, head 'xlnet'    each piece, ends by their beginning

A model of GPT read as DoubleHeads has the auxiliary loss with lambda = 0.5 (Radford et al. 2018, section 4.1), which
the files do not say. BertForMaskedLM is BERT without a next-sentence head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lmx.errors import InputError, nearest
from lmx.interop.huggingface.entry import Entry, Tensors, demand, flipped, integer, norm, rate, same, shown

PROBLEMS = {'classify': 'single_label_classification', 'regress': 'regression'}
LABELS = 100_000  # at most, of a class
LM_WEIGHT = 0.5  # Radford et al. 2018, section 4.1


class Inner(NamedTuple):
  """A layer of a head beside its `Head.layer`, as wide as the model.

  Attributes:
    path: where it is among the parameters of lmx.
    name: of its tensors.
    inputs: of a linear layer, in widths of the model; 0 is a layer normalisation.
    outputs: the same; 0 is a single one.
    bias: whether it has a bias.
  """

  path: str
  name: str
  inputs: int
  outputs: int = 1
  bias: bool = True


class Head(NamedTuple):
  """A class of transformers.

  Attributes:
    model: of lmx.
    objectives: that it computes; of several the first is for classes, the second for a score.
    layer: name of the linear layer's tensors, '' where the class has none.
    path: where the layer is among the parameters of lmx.
    bias: whether it has a bias.
    outputs: of the layer; 0 is one for each label.
    inner: the other layers of the head.
    groups: of what a file of the model may lack (`Entry.group`), those that the class has.
    tied: whether the class has the output matrix of the language model.
    dropout: field of the objective -> the same in config.json.
    numbers: field of the objective -> (the same in config.json, its default there).
    alike: field of the objective -> what it must be for both to compute the same.
    demands: field of config.json -> the same of that side; it is the default there.
    given: further fields of the objective where it is read.
  """

  model: str
  objectives: tuple[str, ...]
  layer: str = ''
  path: str = 'objective/block_0'
  bias: bool = True
  outputs: int = 0
  inner: tuple[Inner, ...] = ()
  groups: tuple[str, ...] = ()
  tied: bool = False
  dropout: Mapping[str, str] = {}
  numbers: Mapping[str, tuple[str, int]] = {}
  alike: Mapping[str, Any] = {}
  demands: Mapping[str, Any] = {}
  given: Mapping[str, Any] = {}


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
_PIECES = {'crf': False}
_XLNET = _LAST | {'head': (0,), 'activation': 'tanh', 'dropout_pooled': 0.0}
_XLNET_SUMMARY = {'summary_type': 'last', 'summary_use_proj': True, 'summary_activation': 'tanh'}


def _scored(model: str) -> Head:
  return Head(
    model,
    ('classify', 'regress'),
    'score',
    bias=False,
    alike=_LAST | {'head_bias': False},
    given=_ROW | {'dropout_pooled': 0.0},
  )


def _double(model: str) -> Head:
  return Head(
    model,
    ('multiple_choice',),
    'multiple_choice_head.summary',
    outputs=1,
    groups=('output',),
    tied=True,
    dropout={'dropout_pooled': 'summary_first_dropout'},
    alike=_LAST,
    demands=_SUMMARY,
    given=_ROW | {'lm_weight': LM_WEIGHT},
  )


def _xlnet(*objectives: str, outputs: int = 0) -> Head:
  return Head(
    'xlnet',
    objectives,
    'logits_proj',
    'objective/block_1',
    outputs=outputs,
    inner=(Inner('objective/block_0', 'sequence_summary.summary', 1),),
    dropout={'dropout_head': 'summary_last_dropout'},
    alike=_XLNET,
    demands=_XLNET_SUMMARY,
    given=_ROW,
  )


HEADS = {
  'BertForPreTraining': Head(
    'bert', ('masked_lm',), groups=('pooler', 'mlm', 'nsp'), tied=True, alike={'next_sentence': True}
  ),
  'BertForMaskedLM': Head('bert', ('masked_lm',), groups=('mlm',), tied=True, alike={'next_sentence': False}),
  'BertForSequenceClassification': Head(
    'bert',
    ('classify', 'regress'),
    'classifier',
    groups=('pooler',),
    dropout={'dropout_pooled': 'classifier_dropout'},
    alike=_POOLED,
    given=_ROW,
  ),
  'BertForMultipleChoice': Head(
    'bert',
    ('multiple_choice',),
    'classifier',
    outputs=1,
    groups=('pooler',),
    dropout={'dropout_pooled': 'classifier_dropout'},
    alike=_POOLED,
    given=_ROW,
  ),
  'BertForTokenClassification': Head(
    'bert',
    ('tag',),
    'classifier',
    'objective',
    dropout={'dropout': 'classifier_dropout'},
    alike=_PIECES,
    given={'constrained': False, 'init_std': 0.02},
  ),
  'BertForQuestionAnswering': Head('bert', ('span',), 'qa_outputs', 'objective', outputs=2, alike={'head': 'bert'}),
  'OpenAIGPTLMHeadModel': Head('gpt', ('causal_lm',), groups=('output',), tied=True),
  'OpenAIGPTDoubleHeadsModel': _double('gpt'),
  'OpenAIGPTForSequenceClassification': _scored('gpt'),
  'GPT2LMHeadModel': Head('gpt2', ('causal_lm',), groups=('output',), tied=True),
  'GPT2DoubleHeadsModel': _double('gpt2'),
  'GPT2ForSequenceClassification': _scored('gpt2'),
  'XLNetLMHeadModel': Head('xlnet', ('permutation_lm',), groups=('output',), tied=True),
  'XLNetForSequenceClassification': _xlnet('classify', 'regress'),
  'XLNetForMultipleChoice': _xlnet('multiple_choice', outputs=1),
  'XLNetForTokenClassification': Head(
    'xlnet',
    ('tag',),
    'classifier',
    'objective',
    alike=_PIECES,
    given={'constrained': False, 'init_std': 0.02, 'dropout': 0.0},
  ),
  'XLNetForQuestionAnsweringSimple': Head(
    'xlnet', ('span',), 'qa_outputs', 'objective', outputs=2, alike={'head': 'bert'}
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
    numbers={'begins': ('start_n_top', 5), 'ends': ('end_n_top', 5)},
    alike={'head': 'xlnet'},
  ),
}
# Files of these may lack, or hold besides, what the class on the right has.
_READ_AS = {
  'BertModel': 'BertForPreTraining',
  'BertForMaskedLM': 'BertForPreTraining',
  'BertForNextSentencePrediction': 'BertForPreTraining',
  'OpenAIGPTModel': 'OpenAIGPTLMHeadModel',
  'GPT2Model': 'GPT2LMHeadModel',
  'XLNetModel': 'XLNetLMHeadModel',
}


def recognise(model: str, theirs: Mapping[str, Any], tensors: Tensors) -> str:
  """The class that a file is of: the one that config.json names, else the one whose layer is among the tensors.

  Args:
    model: of lmx.
    theirs: what config.json holds.
    tensors: under the names of the file.

  Raises:
    InputError: the class is not read, or none is named and several have these tensors.
  """
  own = [name for name, head in HEADS.items() if head.model == model]
  named = theirs['architectures'] if theirs.get('architectures') else []
  if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
    raise InputError(f'config.json: architectures: got {shown(named)}; expected a list of names')
  for name in named:
    read_as = _READ_AS.get(name, str(name))
    if read_as in own:
      return read_as
  if named:
    known = sorted({*own, *(name for name, read in _READ_AS.items() if read in own)})
    raise InputError(f'config.json has architectures = {", ".join(named)}, which is not read{nearest(named[0], known)}')
  fits = [name for name in own if HEADS[name].layer and _fits(HEADS[name], tensors)]
  if len(fits) > 1:
    raise InputError(
      f'config.json names no architectures, and {HEADS[fits[0]].layer}.weight can be of '
      f'{" or ".join(fits)}; write into it which, such as "architectures": ["{fits[0]}"]'
    )
  return fits[0] if fits else own[0]


def _fits(head: Head, tensors: Tensors) -> bool:
  """Return True if the layer and its inputs exist, with a number of outputs that the class can have."""
  weight = f'{head.layer}.weight'
  pooler = any('pooler.' in name for name in tensors)
  right = weight in tensors and head.outputs in (0, tensors[weight].shape[0])
  return right and (pooler or 'pooler' not in head.groups)


def labels(name: str, theirs: Mapping[str, Any]) -> tuple[str, ...]:
  """Names of the labels of a class by config.json, in their order; () where the class has none.

  Raises:
    InputError: numbers of labels are not 0, 1, 2, ..., one has no name, or two have the same name.
  """
  if not HEADS[name].layer or HEADS[name].outputs:
    return ()
  named = theirs['id2label'] if theirs.get('id2label') else {}
  if not named:
    count = integer(theirs, 'num_labels', default=2, high=LABELS)
    return tuple(f'LABEL_{i}' for i in range(count))  # transformers' names, and number
  if not isinstance(named, Mapping):
    raise InputError(f'config.json: id2label: got {shown(named)}; expected an object such as {{"0": "no", "1": "yes"}}')
  for key, label in named.items():
    if isinstance(label, bool) or not isinstance(label, (str, int, float)):
      raise InputError(f'config.json: id2label: got {shown(label)} for label {key}; expected a name')
  found = {str(key): str(label) for key, label in named.items()}
  wanted = [str(i) for i in range(len(found))]
  if sorted(found) != sorted(wanted) or len(set(found.values())) < len(found):
    raise InputError(
      f'config.json has id2label = {shown(named)}; it must name labels 0 to {len(found) - 1}, each its own way'
    )
  return tuple(found[key] for key in wanted)


def objective(name: str, theirs: Mapping[str, Any]) -> dict[str, Any]:
  """The `objective` section of a class by config.json, but the number of labels; {} leaves it to the model.

  Raises:
    InputError: the class is used in a way that lmx does not have, such as for several labels of a row at once.
  """
  head, names = HEADS[name], labels(name, theirs)
  if not head.layer:
    return {}
  for field, value in head.demands.items():
    demand(theirs, field, value)
  chosen = head.objectives[0]
  if head.objectives == tuple(PROBLEMS):
    chosen = 'regress' if len(names) == 1 else 'classify'
    demand(theirs, 'problem_type', None, PROBLEMS[chosen])
  found = {'name': chosen, **head.given, **head.alike}
  for ours, field in head.dropout.items():
    found[ours] = rate(theirs, field if theirs.get(field) is not None else 'hidden_dropout_prob', 0.1)
  found |= {ours: integer(theirs, field, default) for ours, (field, default) in head.numbers.items()}
  return found | ({'metric': 'accuracy'} if chosen == 'classify' else {})


class Task(NamedTuple):
  """Task that a run of lmx was trained for.

  Attributes:
    objective: its name.
    cfg: its Config.
    labels: names of the labels, () where there are none.
  """

  objective: str
  cfg: Any
  labels: Sequence[str] = ()


def choose(model: str, task: Task) -> str:
  """The class that computes what a model of lmx does; InputError if there is none, saying what is otherwise."""
  own = {name: head for name, head in HEADS.items() if head.model == model}
  fits = [name for name, head in own.items() if task.objective in head.objectives]
  if not fits:
    can = sorted({of for head in own.values() for of in head.objectives})
    raise InputError(
      f'{model} with objective "{task.objective}" has no class in transformers; those that have: {", ".join(can)}'
    )
  differ = {name: _differences(own[name].alike, task.cfg) for name in fits}
  for name, differences in differ.items():
    if not differences:
      return name
  name, differences = next(iter(differ.items()))
  raise InputError(f'{name} of transformers computes something else: {"; ".join(differences)}')


def _differences(alike: Mapping[str, Any], cfg: Any) -> list[str]:
  return [
    f'objective.{field} is {getattr(cfg, field)!r}, there it is {value!r}'
    for field, value in alike.items()
    if getattr(cfg, field) != value
  ]


def config(name: str, task: Task) -> dict[str, Any]:
  """Fields of config.json that a class has beside those of its model."""
  head = HEADS[name]
  fields = dict(head.dropout) | {ours: field for ours, (field, _) in head.numbers.items()}
  found: dict[str, Any] = {field: getattr(task.cfg, ours) for ours, field in fields.items()} | dict(head.demands)
  if task.objective in PROBLEMS:
    found['problem_type'] = PROBLEMS[task.objective]
  if head.layer and not head.outputs:
    names = list(task.labels) or ['LABEL_0']
    found['id2label'] = {str(i): label for i, label in enumerate(names)}
    found['label2id'] = {label: i for i, label in enumerate(names)}
  return found


def entries(name: str, body: Iterable[Entry], width: int, outputs: int) -> list[Entry]:
  """Return the entries of the files of a class; parts of the model that the class does not use are optional.

  Args:
    name: of the class.
    body: the model's entries.
    width: D of the model.
    outputs: number of labels, for a class that has some.
  """
  head = HEADS[name]
  if not head.layer:
    return list(body)
  found = [entry for entry in body if entry.path[0] == 'model']
  found = [entry._replace(group='') if entry.group in head.groups else entry for entry in found]
  rows = head.outputs or outputs
  for inner in head.inner:
    found += _inner(inner, width)
  found.append(flipped(f'{head.path}/kernel', f'{head.layer}.weight', rows, width))
  return found + ([same(f'{head.path}/bias', f'{head.layer}.bias', rows)] if head.bias else [])


def _inner(inner: Inner, width: int) -> list[Entry]:
  if not inner.inputs:
    return norm(inner.path, inner.name, width)
  rows = inner.outputs * width or 1
  found = [flipped(f'{inner.path}/kernel', f'{inner.name}.weight', rows, inner.inputs * width)]
  return found + ([same(f'{inner.path}/bias', f'{inner.name}.bias', rows)] if inner.bias else [])


def written(name: str, found: Iterable[Entry]) -> list[Entry]:
  """Those entries of `entries` that the class has."""
  return [entry for entry in found if not entry.group or entry.group in HEADS[name].groups]
