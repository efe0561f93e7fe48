"""GLUE's BiLSTM baselines, one task at a time (Wang et al. 2019, arXiv 1804.07461, section 5, appendix B, table 6).

  lmx train --config=experiments/glue_bilstm/tasks.py:cola --workdir=runs/cola --config.train.init_from=runs/elmo
    --config.data.manual_dir=GLUE

runs/elmo is a run of ELMo's biLM (experiments/elmo/) or an imported one of the size `bilm`; GLUE holds the benchmark's
archives unpacked (CoLA/train.tsv, ...). The default is the paper's "+Attn, ELMo": two layers of 1,500 cells per
direction over ELMo vectors instead of words, attention between the texts of a pair, a second biLSTM. Single texts have
no attention. Options: `elmo=false` reads words, `attention=false` encodes the texts of a pair independently,
`bilm=medium`, small or mini, `cells=200` for a CPU. `elmo=false,fixed` freezes the word vectors from
--config.data.vectors=FILE: theirs are GloVe 840B.300d. `own,elmo=false,vectors=RUN or FILE` gives word vectors to your
table's words: a run of word2vec, or GloVe's or word2vec's file.

  variant  metric                   published, single-task, validation split (table 6)
                                    BiLSTM  +ELMo  +Attn  +Attn, ELMo
  cola     Matthews' correlation    17.6    44.1   17.6   44.1
  sst2     accuracy                 87.5    91.5   87.5   91.5
  mrpc     F1 of "equivalent"       85.1    82.3   82.9   82.1
  qqp      F1 of "duplicate"        82.0    84.3   83.9   83.6
  stsb     Pearson's correlation    71.6    70.3   66.6   57.9
  mnli     accuracy (theirs: also   66.7    68.6   70.0   72.4
           of the mismatched part)
  qnli     accuracy                 77.0    71.2   77.2   75.2
  rte      accuracy                 58.5    53.4   58.5   52.7
  wnli     accuracy                 56.3    56.3   60.6   56.3
  own      accuracy on your table (docs/which_model.md); own_pairs, the same of two texts, sentence1 and sentence2, or
           --config.data.texts="('premise','hypothesis')"; own_scores, Pearson's correlation with its numeric scores
  tiny     pairs from the embedded corpus, of words: seconds on a CPU; `tiny,elmo` has ELMo vectors

Theirs are the best of three runs on that split.

Batch 128, Adam, one validation per epoch, a fifth of the learning rate after each without improvement. The task's
metric selects the checkpoint and reduces the rate (src/trainer.py, lines 394 to 422): of MRPC and QQP the mean of
accuracy and F1 (src/tasks.py, lines 147 and 244), else the table's. `fidelity=released` (default; final_exps.sh and
trainer.py of nyu-mll/GLUE-baselines) stops when a validation is no better than each of the five before it (trainer.py,
lines 137 to 150) or the rate is below 1e-6 (run_stuff.sh, line 48), and has L2 of 1e-5 in the gradient, texts truncated
to 40 words, a vocabulary of 30,000 and a linear layer for STS-B. `fidelity=paper` stops after five validations without
improvement or below 1e-5 (section 5), gives STS-B the layer of 512 too, and has no L2, as section 5 mentions none. The
initial rate is 1e-4 in section 5 and in the code, and 1e-3 in appendix B.2: `lr=1e-3`. Dropout 0.2 and clipping at 5
are the code's.

Deviations: correlations are of the whole validation split, in the code means over its batches (src/models.py, lines 227
and 235); MNLI validates only on the matched part; words are split by rule, not by NLTK; STS-B scores are 0 to 5, not
divided by 5. Without data.vectors words are newly initialised and trained.
"""

from __future__ import annotations

from typing import Any

from experiments import config, fine_tuning, glue
from experiments.elmo import recipe

VARIANTS = (*glue.TASKS, *glue.OWN, 'tiny')
SINGLE = ('cola', 'sst2')  # tasks of one text
REGRESSION = {'pooling': 'pooled', 'bptt': 0, 'normalize': False, 'dropout_pooled': 0.0, 'dropout_head': 0.0}


@config.arguments(
  VARIANTS,
  elmo=('', 'true', 'false'),
  attention=True,
  bilm=('original', 'medium', 'small', 'mini'),
  fixed=False,
  vectors='',
  cells=1500,
  lr=1e-4,
  fidelity=('released', 'paper'),
)
def get_config(variant, options):
  elmo = (options.elmo or str(variant != 'tiny').lower()) == 'true'
  single, released = variant in SINGLE, options.fidelity == 'released'
  base: dict[str, Any] = {
    'name': f'glue_bilstm_{variant}',
    'model': {
      'name': 'glue_bilstm',
      'D': options.cells,
      'texts': 0 if variant in glue.OWN else 1 if single else 2,
      'attention': options.attention and not single,
    },
    'data': {
      'tokenizer': 'words',
      'vocab_size': 30_000,
      'batching': {'name': 'texts', 'form': 'separate', 'buckets': (16, 24, 32), 'pool': 0},
      'batch_size': 128,
      'length': 40,
    },
    'optim': {
      'optimizer': 'adam',
      'lr': options.lr,
      'weight_decay': 1e-5 * released,
      'clip_norm': 5.0,
      'schedule': 'plateau',
      'factor': 0.2,
      'stop_lr': 1e-6 if released else 1e-5,
    },
    'train': {
      'epochs': 100,
      'patience': 5,
      'patience_form': 'recent' if released else 'best',
      'best_by': 'accuracy_f1' if variant in ('mrpc', 'qqp') else 'headline',
      'log_every': 50,
    },
    'evaluation': {'split': fine_tuning.measured_split(variant), 'baselines': False},
  }
  if variant == 'tiny':
    return config.merge(base, _tiny('input' if elmo else 'none'))
  size = recipe.task(options.bilm, 'input' if elmo else 'none', False)
  if options.fixed and not elmo:  # with ELMo there are no words
    size = recipe.fix_words(size)
  head = {'objective': {**REGRESSION, 'head': () if released else (512,), 'activation': 'tanh'}}
  vectors = fine_tuning.word_vectors(options.vectors) if variant in glue.OWN and not elmo else {}
  return config.merge(base, glue.task(variant), size, head if variant in ('stsb', 'own_scores') else {}, vectors)


def _tiny(elmo: str) -> dict[str, Any]:
  changes = {
    'objective': {'name': 'classify', 'metric': 'accuracy'},
    'data': {'dataset': 'embedded_pairs', 'vocab_size': 500, 'batching': {'buckets': ()}},
    'train': {'epochs': 0},
    'evaluation': {'split': 'test'},
  }
  return config.merge(recipe.tiny(elmo), {'model': {'D': 8}}, changes).to_dict()


def sweep():
  yield from config.grid(optim__lr=[1e-3, 1e-4], seed=[0, 1, 2])
