"""Draw how a translator looks at its source: `python examples/attention.py RUN "A line." PICTURE.png`."""

import sys

import matplotlib.pyplot as plt
import numpy as np

import lmx
from lmx.decoding import translate

if len(sys.argv) != 4:
  sys.exit(
    'usage: python examples/attention.py RUN "A line." PICTURE.png; RUN is a translator, such as a Marian folder'
  )
run, line, picture = lmx.load(sys.argv[1]), sys.argv[2], sys.argv[3]

translator = translate.build_translator(run.run, run.params['model'], run.tokenizer)
(source_S,) = translator.sources([line])
best = translate.translate(translator, [line], translate.Options(beam=4))[0][0]
target_T = np.asarray(best.tokens, np.int32)
(a_TS,) = translate.alignments(translator, [source_S], [target_T], 4096)  # each row sums to 1

figure, axes = plt.subplots(figsize=(2 + 0.4 * len(source_S), 2 + 0.4 * len(target_T)), layout='constrained')
axes.imshow(a_TS, cmap='gray', vmin=0, vmax=1)
axes.set_xticks(range(len(source_S)), [run.tokenizer.id_to_token(i) for i in source_S], rotation=60)
axes.set_yticks(range(len(target_T)), [run.tokenizer.id_to_token(i) for i in target_T])
axes.set_title(best.text)
figure.savefig(picture)
print(f'{best.text} ({picture})')
