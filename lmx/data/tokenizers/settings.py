"""Settings in a tokenizer folder written by transformers' `save_pretrained`.

tokenizer_config.json has options and special tokens, special_tokens_map.json special tokens, added_tokens.json the
ids of tokens beyond the vocabulary. A tokenizer.json is complete, so with one only the settings that transformers
overrides are read. With a vocab.txt, vocab.json or spiece.model every key matters, so an unknown key is an error.

Of a tokenizer.json, transformers overrides BERT's normalizer and the first space of GPT-2, and only if
tokenizer_config.json names that model's class, or no class. For a missing key of BERT's normalizer an import takes the
class's own value; a tokenizer for other data (`data.tokenizer_path`) keeps the file's. Texts are truncated at their
end, so another truncation_side is an error. Padding does not affect lmx's predictions, so padding_side may be either.

transformers reads special tokens in a text as special tokens, unless split_special_tokens is true. An import does the
same; a tokenizer for other data (`data.tokenizer_path`) reads them as text.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tokenizers as hf

from lmx import documents
from lmx.errors import InputError, nearest

FILE = 'tokenizer_config.json'
ROLES = ('pad', 'unk', 'cls', 'sep', 'mask', 'bos', 'eos')
# Default names of a special token, by kind and role; another name counts as renamed, and () allows any.
_END = '<|endoftext|>'
_BERT: dict[str, tuple[str, ...]] = {role: (f'[{role.upper()}]',) for role in ('pad', 'unk', 'cls', 'sep', 'mask')}
_XLNET: dict[str, tuple[str, ...]] = {role: (f'<{role}>',) for role in ('pad', 'unk', 'cls', 'sep', 'mask')}
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
  'wordpiece': _BERT,
  'bpe': {'bos': (_END,), 'eos': (_END,)},
  'gpt_bpe': {'unk': ('<unk>',)},
  'unigram': _XLNET | {'bos': ('<s>', _END), 'eos': ('</s>', _END)},
  'marian': {'unk': ('<unk>',), 'eos': ('</s>',), 'pad': ('<pad>',)},
  'moses': {'unk': ('<unk>',), 'bos': ('<s>',), 'sep': ('</s>',), 'pad': ('<pad>',)},
}
# Special tokens of a kind's class not in `_NAMES`, and the token that absorbs the white space before it.
_FURTHER = {'unigram': ('<s>', '</s>', '<eop>', '<eod>')}
_STRIPPED = {'unigram': '<mask>'}
_RENAMED = ('wordpiece', 'bpe')  # kinds that may have special tokens of other names
_FLAGS = ('single_word', 'lstrip', 'rstrip', 'normalized')  # of an added token
# Keys without effect on tokens.
_UNUSED = re.compile(
  r'_.*|backend|cache_dir|chat_template|clean_up_tokenization_spaces|device_map|errors|from_slow|'
  r'full_tokenizer_file|init_inputs|is_local|language|legacy|local_files_only|max_len(gth)?|max_model_input_sizes|merges_file|'
  r'model_input_names|model_max_length|model_type|name_or_path|pad_to_(max_length|multiple_of)|pad_token_(id|type_id)|'
  r'padding(_side)?|processor_class|return_.*|revision|special_tokens(_map_file)?|stride|'
  r'subfolder|tok(enizer)?_file|token|transformers_version|trim_offsets|truncation(_side|_strategy)?|'
  r'trust_remote_code|unk_id|use_(auth_token|fast)|verbose|vocab_(file|size)|(bos|eos|unk|sep|cls|mask)_token_id'
)
# Key -> the supported values.
_FIXED: dict[str, dict[str, tuple[Any, ...]]] = {
  'wordpiece': {
    'do_basic_tokenize': (True,),
    'never_split': (None, []),
    'wordpieces_prefix': ('##',),
    'max_input_chars_per_word': (100,),
    'clean_text': (True,),
  },
  'bpe': {'add_bos_token': (False, True), 'add_eos_token': (False,), 'do_lower_case': (False,)},
  'gpt_bpe': {'do_lower_case': (True,)},
  'unigram': {'remove_space': (True,), 'sp_model_kwargs': (None, {})},
  'marian': {'sp_model_kwargs': (None, {})},
  'moses': {},
}
_CLASSES = {
  'wordpiece': r'(Bert|DistilBert|Electra|MobileBert|ConvBert|Lxmert|Funnel|LayoutLM|Retri\w+|DPR\w+)Tokenizer(Fast)?',
  'bpe': r'GPT2Tokenizer(Fast)?',
  'gpt_bpe': r'OpenAIGPTTokenizer(Fast)?',
  'unigram': r'XLNetTokenizer(Fast)?',
  'marian': r'MarianTokenizer',
  'moses': r'FSMTTokenizer',
}
_ANY_LENGTH = 10**9
_ANY_CLASS = ('PreTrainedTokenizerFast', 'TokenizersBackend')  # class of a tokenizer.json for any model
# Normalizer of BERT's class, for keys that tokenizer_config.json lacks; the class replaces the one of tokenizer.json.
_BERT_NORMALIZER = {'lowercase': True, 'strip_accents': None, 'handle_chinese_chars': True}
_SWITCHES = {'strip_accents': 'strip_accents', 'tokenize_chinese_chars': 'handle_chinese_chars'}


class Settings(NamedTuple):
  """Settings of a folder.

  Attributes:
    lower_case: do_lower_case; None if not given.
    normalizer: given fields of BERT's normalizer, by their names in the library.
    keep_accents: option of a spiece.model.
    prefix_space: add_prefix_space; None keeps the model's.
    any_class: True if tokenizer_class is generic and overrides nothing.
    truncation_side: None if not given.
    special: role -> name of the special tokens whose names differ from the kind's defaults.
    added: (id, token) beyond the vocabulary, by id.
    extra: further special tokens.
    tokens: the special tokens that the files name, with the white space that belongs to them.
    default: the class's special tokens under their default names.
    split_special: special tokens in a text are text.
    adds_bos: add_bos_token.
    gives_types: the model gets token types (`model_input_names`); None if versions 4 and 5 of transformers differ.
    max_length: model_max_length, 0 for none.
    class_normalizer: fields of BERT's normalizer in its class, which replace those of tokenizer.json if none is given.
  """

  lower_case: bool | None = None
  normalizer: Mapping[str, bool | None] = {}
  keep_accents: bool = False
  prefix_space: bool | None = None
  any_class: bool = False
  truncation_side: str | None = None
  special: Mapping[str, str] = {}
  added: tuple[tuple[int, hf.AddedToken], ...] = ()
  extra: tuple[str, ...] = ()
  tokens: tuple[hf.AddedToken, ...] = ()
  default: tuple[hf.AddedToken, ...] = ()
  split_special: bool = False
  adds_bos: bool = False
  gives_types: bool | None = None
  max_length: int = 0
  class_normalizer: Mapping[str, bool | None] = {}


def read(directory: Any, kind: str) -> Settings:
  """Read the settings of a folder; without such files they are the defaults.

  Args:
    directory: the folder.
    kind: kind of its tokenizer: 'wordpiece', 'bpe', 'gpt_bpe', 'unigram', 'marian' or 'moses'; another has none.

  Raises:
    InputError: a file is damaged, a value has another type or is not supported, or a key is
      unknown; the file and the key are named.
  """
  directory = pathlib.Path(directory)
  if kind not in _NAMES:
    return Settings()
  config, where = _object(directory / FILE), str(directory / FILE)
  if not (directory / 'tokenizer.json').exists():
    _check(config, kind, where)
  sides = [_side(config, key, where) for key in ('truncation_side', 'padding_side')]
  switch = lambda key: documents.convert(config[key], bool, f'{where}: {key}') if config.get(key) is not None else None
  normalizer = {theirs: switch(key) for key, theirs in _SWITCHES.items() if key in config}
  normalizer = {name: value for name, value in normalizer.items() if value is not None or name == 'strip_accents'}
  any_class = config.get('tokenizer_class') in _ANY_CLASS
  lower_case = None if any_class else switch('do_lower_case')
  normalizer |= {} if lower_case is None else {'lowercase': lower_case}
  special, extra = _special(directory, kind, config)
  tokens = _special_tokens(directory, config)
  return Settings(
    lower_case,
    normalizer if kind == 'wordpiece' and not any_class else {},
    bool(switch('keep_accents')),
    bool(switch('add_prefix_space')) if kind == 'bpe' else None,
    any_class,
    sides[0],
    special,
    _added_tokens(directory, config, {*special.values(), *extra}),
    extra,
    tokens,
    () if any_class else _default_tokens(kind, config, special),
    bool(switch('split_special_tokens')),
    bool(switch('add_bos_token')) if kind == 'bpe' else False,
    _gives_types(config, kind, where),
    _max_length(config, where),
    _BERT_NORMALIZER if kind == 'wordpiece' and not any_class else {},
  )


def _gives_types(config: Mapping[str, Any], kind: str, where: str) -> bool | None:
  names = config.get('model_input_names')
  if names is not None:
    return 'token_type_ids' in documents.convert(names, list, f'{where}: model_input_names')
  if config.get('tokenizer_class') in _ANY_CLASS or kind == 'unigram':
    return None
  return kind == 'wordpiece'


def _max_length(config: Mapping[str, Any], where: str) -> int:
  """Return model_max_length; transformers writes 10^30 for none."""
  length = config.get('model_max_length')
  if length is not None and (type(length) not in (int, float) or length < 1):
    raise InputError(f'{where}: model_max_length: got {documents.show(length)}; expected a number from 1 on')
  return int(length) if length is not None and length < _ANY_LENGTH else 0


def _side(config: Mapping[str, Any], key: str, where: str) -> str | None:
  side = config.get(key)
  if side not in (None, 'left', 'right'):
    raise InputError(f'{where}: {key}: got {documents.show(side)}; expected "left" or "right"')
  return side


def _object(path: pathlib.Path) -> dict[str, Any]:
  content = documents.read_json(path) if path.exists() else {}
  return documents.convert(content, dict, str(path))


def _check(settings: Mapping[str, Any], kind: str, where: str) -> None:
  """Raise InputError for an unsupported value, and for an unknown key that may change tokens."""
  for key, values in _FIXED[kind].items():
    if key in settings and settings[key] not in values:
      raise InputError(
        f'{where}: {key}: got {documents.show(settings[key])}; expected '
        f'{" or ".join(map(documents.show, values))}, because lmx supports no other'
      )
  name = settings.get('tokenizer_class')
  if name is not None and not (isinstance(name, str) and re.fullmatch(_CLASSES[kind], name)):
    raise InputError(
      f'{where}: tokenizer_class: got {documents.show(name)}; expected a tokenizer of kind "{kind}"; '
      'save the folder with tokenizer.json, from a fast tokenizer'
    )
  known = {
    *(f'{role}_token' for role in ROLES),
    *_FIXED[kind],
    'additional_special_tokens',
    'extra_special_tokens',
    'added_tokens_decoder',
    'split_special_tokens',
    'tokenizer_class',
  }
  known |= {
    'wordpiece': {*_SWITCHES, 'do_lower_case'},
    'bpe': {'add_prefix_space'},
    'gpt_bpe': set(),
    'unigram': {'do_lower_case', 'keep_accents'},
    'marian': {
      'source_lang',
      'target_lang',
      'separate_vocabs',
      'source_spm',
      'target_spm',
      'vocab',
      'target_vocab_file',
    },
    'moses': {'langs', 'do_lower_case', 'src_vocab_file', 'tgt_vocab_file'},
  }[kind]
  for key in settings:
    if key not in known and not _UNUSED.fullmatch(key):
      raise InputError(f'{where}: got the unknown key "{key}"{nearest(key, known)}; remove it if it changes no token')


def _special(directory: pathlib.Path, kind: str, config: Mapping[str, Any]) -> tuple[dict[str, str], tuple[str, ...]]:
  """Return (role -> name of the renamed special tokens, names of further ones)."""
  others = _object(directory / 'special_tokens_map.json')
  special: dict[str, str] = {}
  for role in ROLES:
    key = f'{role}_token'
    names = {_name(source[key], f'{directory}: {key}') for source in (config, others) if source.get(key) is not None}
    if len(names) > 1:
      raise InputError(
        f'{directory}: {key}: got {" and ".join(sorted(names))} in {FILE} and special_tokens_map.json; '
        'expected one name'
      )
    if names and role in _NAMES[kind] and not names <= {*_NAMES[kind][role]}:
      special[role] = names.pop()
  if special and kind not in _RENAMED:
    role, name = next(iter(special.items()))
    raise InputError(
      f'{directory / FILE}: {role}_token: got "{name}"; expected {" or ".join(_NAMES[kind][role])}, '
      f'because a tokenizer of kind "{kind}" supports no other'
    )
  extra = {_name(value, where): None for source in (config, others) for value, where in _further(directory, source)}
  return special, tuple(extra)


def _further(directory: pathlib.Path, source: Mapping[str, Any]) -> list[tuple[Any, str]]:
  """Return (special token without a role, its key) of a file."""
  further: list[tuple[Any, str]] = []
  for key in ('additional_special_tokens', 'extra_special_tokens'):
    tokens, where = source.get(key) or [], f'{directory}: {key}'
    values = tokens.values() if isinstance(tokens, dict) else documents.convert(tokens, list, where)
    further += [(value, where) for value in values]
  return further


def _special_tokens(directory: pathlib.Path, config: Mapping[str, Any]) -> tuple[hf.AddedToken, ...]:
  """Return the special tokens that the files name; special_tokens_map.json precedes tokenizer_config.json."""
  tokens: dict[str, hf.AddedToken] = {}
  for source in (_object(directory / 'special_tokens_map.json'), config):
    roles = [(source.get(f'{role}_token'), f'{directory}: {role}_token') for role in ROLES]
    for value, where in [*roles, *_further(directory, source)]:
      if value is None:
        continue
      name = _name(value, where)
      options = {key: documents.field(value, key, bool, where, False) for key in _FLAGS} if name != value else {}
      tokens.setdefault(name, hf.AddedToken(name, special=True, **options))
  return tuple(tokens.values())


def _default_tokens(kind: str, config: Mapping[str, Any], special: Mapping[str, str]) -> tuple[hf.AddedToken, ...]:
  """Return the special tokens of a kind's class, but for those that are renamed."""
  names = [choices[0] for role, choices in _NAMES[kind].items() if role not in special]
  names += [] if config.get('additional_special_tokens') else _FURTHER.get(kind, ())
  stripped = _STRIPPED.get(kind)
  return tuple(hf.AddedToken(name, special=True, lstrip=name == stripped) for name in dict.fromkeys(names))


def _name(value: Any, where: str) -> str:
  return documents.convert(value['content'] if isinstance(value, dict) and 'content' in value else value, str, where)


def _added_tokens(
  directory: pathlib.Path, config: Mapping[str, Any], special: set[str]
) -> tuple[tuple[int, hf.AddedToken], ...]:
  """Return (id, token) of the tokens beyond the vocabulary."""
  path = directory / 'added_tokens.json'
  tokens: dict[int, hf.AddedToken] = {}
  for name, number in _object(path).items():
    is_special = name in special
    tokens[documents.convert(number, int, f'{path}: {name}')] = hf.AddedToken(
      name, special=is_special, normalized=not is_special
    )
  decoder = documents.field(config, 'added_tokens_decoder', dict, str(directory / FILE), {})
  for key, token in decoder.items():
    where = f'{directory / FILE}: added_tokens_decoder: {key}'
    if not key.isdecimal():
      raise InputError(f'{where}: expected the id of a token')
    options = {name: documents.field(token, name, bool, where, False) for name in (*_FLAGS, 'special')}
    tokens[int(key)] = hf.AddedToken(documents.field(token, 'content', str, where), **options)
  return tuple(sorted(tokens.items(), key=lambda entry: entry[0]))


def apply(
  model: hf.Tokenizer, settings: Settings, where: Any, *, special_in_text: bool = False, by_class: bool = False
) -> hf.Tokenizer:
  """Return the model with the settings that its file lacks.

  Args:
    model: model of a tokenizer.json or a vocabulary; it is modified.
    settings: settings of its folder.
    where: the folder, for messages.
    special_in_text: special tokens in a text are special tokens.
    by_class: the model is of a tokenizer.json that the class of its folder reads, with `class_normalizer`.

  Raises:
    InputError: an added token's id differs from its id in the vocabulary, texts are truncated at their start, or
      versions of transformers read the folder differently.
  """
  side = settings.truncation_side or (model.truncation or {}).get('direction', 'right')
  if side != 'right':
    raise InputError(
      f'{where}: truncation_side: got "{side}"; expected "right", because lmx truncates texts at their end; set it to '
      'that if texts are short, or if only text is generated'
    )
  state = json.loads(model.to_str())
  normalizer, splits = state['normalizer'] or {}, state['pre_tokenizer'] or {}
  given = {**(settings.class_normalizer if by_class else {}), **settings.normalizer}
  if given and normalizer.pop('type', '') == 'BertNormalizer':
    model.normalizer = hf.normalizers.BertNormalizer(**normalizer | given)
  if settings.prefix_space is not None and splits.get('type') == 'ByteLevel':
    if settings.any_class and settings.prefix_space != splits['add_prefix_space']:
      raise InputError(
        f'{where}: add_prefix_space: got {json.dumps(settings.prefix_space)} or none in {FILE} and '
        f'{json.dumps(splits["add_prefix_space"])} in tokenizer.json; expected the same in both, because versions 4 '
        'and 5 of transformers choose differently'
      )
    model.pre_tokenizer = hf.pre_tokenizers.ByteLevel(settings.prefix_space, use_regex=splits['use_regex'])
  is_special = {token.content: token.special for token in model.get_added_tokens_decoder().values()}
  for number, token in settings.added:
    known = model.token_to_id(token.content)
    if not (token.special and known is not None) and is_special.get(token.content) != token.special:
      (model.add_special_tokens if token.special else model.add_tokens)([token])
    if model.token_to_id(token.content) != number:
      raise InputError(
        f'{where}: added token "{token.content}": got id {number}; expected '
        f'{model.token_to_id(token.content)}, the next of the vocabulary'
      )
  missing = [name for name in settings.extra if model.token_to_id(name) is None]
  if missing:
    model.add_special_tokens(missing)
  if special_in_text:
    _declare(model, settings)
  return model


def _declare(model: hf.Tokenizer, settings: Settings) -> None:
  """Register the special tokens that the model recognises in a text, in transformers' order.

  Tokens in added_tokens_decoder replace those of tokenizer.json; others are added if it has no token with that name.
  The class's default tokens are omitted if the vocabulary lacks them.
  """
  named = {token.content for token in (*settings.tokens, *settings.default)}
  known = {repr(token) for token in model.get_added_tokens_decoder().values()}
  for _, token in settings.added:
    if repr(token) not in known:
      token.special = token.special or token.content in named
      model.add_tokens([token])
  known = {token.content for token in model.get_added_tokens_decoder().values()}
  for token in settings.tokens:
    model.add_tokens([token] * (token.content not in known))
  for token in settings.default:
    model.add_tokens([token] * (token.content not in known and model.token_to_id(token.content) is not None))
