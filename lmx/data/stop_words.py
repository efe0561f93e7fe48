"""English stop words: articles, pronouns, prepositions, conjunctions, auxiliaries.

Radford et al. (2019, section 3.3) exclude such words as predictions of LAMBADA's last word and do not publish their
list. Ours only has closed word classes, so no word that a passage could lead up to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

WORDS = frozenset(
  'a an the this that these those each every either neither some any no none all both half such what which whose '
  'i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself '
  'we us our ours ourselves they them their theirs themselves one ones who whom someone something anyone anything '
  'everyone everything nobody nothing whoever whatever whichever '
  'about above across after against along amid among around as at before behind below beneath beside besides between '
  'beyond but by despite down during except for from in inside into like near of off on onto out outside over past per '
  'since than through throughout till to toward towards under underneath until unto up upon via with within without '
  'and or nor so yet if unless because although though while whereas whether when whenever where wherever why how '
  'be am is are was were been being have has had having do does did doing done will would shall should can could may '
  "might must ought need not n't "
  'very too also just only even then there here thus hence again ever never once more most much many few less least '
  'other another own same s t d m re ve ll'.split()
)


def token_ids(tokenizer: Any) -> np.ndarray:
  """Return the ids (W,), ascending, of single tokens that are a stop word.

  The word may start with a blank or a capital.
  """
  forms = {blank + form for word in WORDS for form in (word, word.capitalize()) for blank in ('', ' ')}
  ids_of_stop_words = {int(ids[0]) for ids in tokenizer.encode_batch(sorted(forms)) if len(ids) == 1}
  return np.asarray(sorted(ids_of_stop_words - {tokenizer.unk_id}), np.int32)
