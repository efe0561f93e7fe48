"""Object-based BERT checkpoints of TensorFlow 2, as the Model Garden (tensorflow/models, official/nlp) writes them.

Keys are paths through the program's objects, such as encoder/layer_with_weights-4/_attention_layer/_key_dense/kernel,
and differ from version to version. The object graph in the file also has each variable's name, such as
transformer/layer_0/self_attention/key/kernel. These names are the same in all versions, so they identify the variables.
They are mapped to google-research/bert's names (lmx/interop/tensorflow.py), with kernels (in, out). In the file,
attention kernels have a head axis, and task head weights are kernels too.

The encoder; BertPretrainer and BertPretrainerV2; BertClassifier, BertSpanLabeler and BertTokenClassifier, of
official/legacy/bert or official/nlp/modeling/models, are read. A classification head with its own pooler
(ClassificationHead's pooler_dense) reads the last layer; the encoder's pooler is then unused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from lmx.errors import InputError
from lmx.interop.tensor_table import UNUSED, Row

GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'
SKIPPED = rf'(.*/)?optimizer/.*|.*\.OPTIMIZER_SLOT/.*|(save_counter|global_step|step){_VALUE}'
_LAYER = r'transformer/layer_(\d+)/'
# End of a variable's name -> its name in google-research/bert. \g<last> is kernel, bias, gamma or beta.
_NAMES = (
  ('word_embeddings/embeddings', 'bert/embeddings/word_embeddings'),
  ('position_embedding/embeddings', 'bert/embeddings/position_embeddings'),
  ('type_embeddings/embeddings', 'bert/embeddings/token_type_embeddings'),
  (r'embeddings/layer_norm/(?P<last>\w+)', r'bert/embeddings/LayerNorm/\g<last>'),
  (
    _LAYER + r'self_attention/(query|key|value)/(?P<last>\w+)',
    r'bert/encoder/layer_\1/attention/self/\2/\g<last>',
  ),
  (
    _LAYER + r'self_attention(?:/attention)?_output/(?P<last>\w+)',
    r'bert/encoder/layer_\1/attention/output/dense/\g<last>',
  ),
  (
    _LAYER + r'self_attention_layer_norm/(?P<last>\w+)',
    r'bert/encoder/layer_\1/attention/output/LayerNorm/\g<last>',
  ),
  (_LAYER + r'intermediate/(?P<last>\w+)', r'bert/encoder/layer_\1/intermediate/dense/\g<last>'),
  (_LAYER + r'output/(?P<last>\w+)', r'bert/encoder/layer_\1/output/dense/\g<last>'),
  (_LAYER + r'output_layer_norm/(?P<last>\w+)', r'bert/encoder/layer_\1/output/LayerNorm/\g<last>'),
  (r'pooler_transform/(?P<last>\w+)', r'bert/pooler/dense/\g<last>'),
  ('cls/predictions/output_bias/bias', 'cls/predictions/output_bias'),
  (r'cls/predictions/transform/(dense|LayerNorm)/(?P<last>\w+)', r'cls/predictions/transform/\1/\g<last>'),
  (r'(?:next_sentence|sentence_prediction)/pooler_dense/(?P<last>\w+)', r'pooler_dense/\g<last>'),
  (r'next_sentence/logits/(?P<last>\w+)', r'cls/seq_relationship/\g<last>'),
  (r'sentence_prediction/logits/(?P<last>\w+)', r'classifier/\g<last>'),
  (r'predictions/transform/logits/(?P<last>\w+)', r'logits/\g<last>'),
)
_OWN_POOLER = 'pooler_dense/'
# BertSpanLabeler's head is a network, BertTokenClassifier's a layer; both have the same name, as the pre-training's.
_SPAN = rf'.*layer_with_weights-\d+/layer_with_weights-\d+/kernel{_VALUE}'


class Variables(NamedTuple):
  """Variables of a checkpoint.

  Attributes:
    arrays: array by name in google-research/bert.
    keys: key in the file by that name.
    unused: those with which nothing is computed.
    tags: True if the head labels each token.
  """

  arrays: dict[str, np.ndarray]
  keys: dict[str, str]
  unused: list[Row]
  tags: bool


def bert(values: Mapping[str, np.ndarray], graph: bytes, where: Any) -> Variables:
  """Return BERT's variables.

  Args:
    values: array by key, without SKIPPED keys.
    graph: its object graph.
    where: the checkpoint, for messages.

  Raises:
    InputError: the object graph is damaged, two variables have the same name, or a kernel has a wrong shape.
  """
  full_names = _full_names(graph, where)
  unused: list[Row] = []
  keys: dict[str, str] = {}
  for key in sorted(values):
    name = _name(full_names.get(key, key))
    if name in keys:
      raise InputError(
        f'{where}: got {keys[name]} and {key}, both {full_names[key]}; expected the variables of one model'
      )
    keys[name] = key
  tags = False
  if 'logits/kernel' in keys:
    pretrained = 'cls/predictions/output_bias' in keys
    tags = not pretrained and not re.fullmatch(_SPAN, keys['logits/kernel'])
    head = 'cls/seq_relationship' if pretrained else 'classifier' if tags else 'qa_outputs'
    keys = {re.sub('^logits/', f'{head}/', name): key for name, key in keys.items()}
  for name in [name for name in keys if name.startswith(_OWN_POOLER)]:
    replaced = name.replace(_OWN_POOLER, 'bert/pooler/dense/')
    if replaced in keys:
      x, note = values[keys[replaced]], f'{keys[name]} is computed with'
      unused.append(Row(UNUSED, keys[replaced], x.shape, x.dtype.name, note))
    keys[replaced] = keys.pop(name)
  return Variables({name: _flat(name, values[key]) for name, key in keys.items()}, keys, unused, tags)


def _name(full_name: str) -> str:
  """Return a variable's name in google-research/bert; an unknown one is unchanged."""
  for pattern, name in _NAMES:
    if match := re.fullmatch(f'(?:.*/)?{pattern}', full_name):
      return match.expand(name)
  return full_name


def _flat(name: str, x: np.ndarray) -> np.ndarray:
  """Return an array without the axis of heads."""
  if '/attention/self/' in name and x.ndim > 1:
    return x.reshape(len(x), -1) if name.endswith('/kernel') else x.reshape(-1)
  return x.reshape(-1, x.shape[-1]) if x.ndim == 3 else x


@functools.cache
def _graph_proto() -> Any:
  """Return the class of an object graph, with the fields of TensorFlow's trackable_object_graph.proto read here."""
  kinds = descriptor_pb2.FieldDescriptorProto
  file = descriptor_pb2.FileDescriptorProto(name='lmx/object_graph.proto', package='lmx.object_graph', syntax='proto3')
  tensor = file.message_type.add(name='Tensor')
  for name, number in (('full_name', 2), ('checkpoint_key', 3)):
    tensor.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
  for parent, name, number, part in (('Node', 'attributes', 2, 'Tensor'), ('Graph', 'nodes', 1, 'Node')):
    file.message_type.add(name=parent).field.add(
      name=name,
      number=number,
      type=kinds.TYPE_MESSAGE,
      label=kinds.LABEL_REPEATED,
      type_name=f'.lmx.object_graph.{part}',
    )
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return message_factory.GetMessageClass(pool.FindMessageTypeByName('lmx.object_graph.Graph'))


def _full_names(graph: bytes, where: Any) -> dict[str, str]:
  """Return each variable's name by its key."""
  try:
    nodes = _graph_proto().FromString(graph).nodes
  except (message.DecodeError, UnicodeDecodeError, TypeError) as error:
    raise InputError(f'{where}: {GRAPH}: damaged or truncated ({error})') from None
  return {tensor.checkpoint_key: tensor.full_name for node in nodes for tensor in node.attributes}
