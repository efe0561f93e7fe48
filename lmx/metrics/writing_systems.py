"""Text written without spaces between words: Chinese, Japanese, Thai, Lao, Burmese, Khmer, Tibetan.

Words between white space are sentences or phrases there, so metrics count characters instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_LANGUAGES = {  # ISO 639-1 code -> its other codes
  'zh': ('zho', 'chi', 'cmn', 'yue', 'wuu'),
  'ja': ('jpn',),
  'th': ('tha',),
  'lo': ('lao',),
  'my': ('mya', 'bur'),
  'km': ('khm',),
  'bo': ('bod', 'tib'),
  'dz': ('dzo',),
}
_CODES = {other: code for code, others in _LANGUAGES.items() for other in others} | {'kor': 'ko'}
_CHARACTER = re.compile(
  '[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]'
)
_SAMPLE = 100_000  # characters that decide
_LONGEST_WORD = 6  # mean characters between spaces; words of segmented Chinese or Thai have 2 to 4


def code(language: str) -> str:
  """Return the two-letter code of a language such as 'zh_CN', 'zho' or 'zh'; other names in lower case."""
  first = re.split('[-_]', language.lower())[0]
  return _CODES.get(first, first)


def is_unspaced(texts: Iterable[str], language: str = '') -> bool:
  """Return True for a language, or texts judged by characters and spaces, written without spaces."""
  if code(language) in _LANGUAGES:
    return True
  sample: list[str] = []
  size = 0
  for text in texts:
    sample.append(text[:_SAMPLE])
    size += len(text)
    if size >= _SAMPLE:
      break
  whole = ' '.join(sample)
  letters = sum(map(str.isalpha, whole))
  found = len(_CHARACTER.findall(whole))
  return 2 * found > letters and len(''.join(whole.split())) > _LONGEST_WORD * len(whole.split())


def is_character(token: str) -> bool:
  """Return True for one character of these scripts."""
  return bool(_CHARACTER.fullmatch(token))


def count_characters(text: str) -> int:
  """Return the number of characters that are not white space."""
  return len(''.join(text.split()))


def separate(text: str) -> str:
  """Return the text with spaces around each character of these scripts, and without punctuation.

  These are the tokens of MLQA's evaluation of Chinese answers (Lewis et al. 2020, arXiv 1910.07475).
  """
  plain = ''.join(' ' if unicodedata.category(c).startswith('P') else c for c in text)
  return ' '.join(_CHARACTER.sub(lambda match: f' {match[0]} ', plain).split())
