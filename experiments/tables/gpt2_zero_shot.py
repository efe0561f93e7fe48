"""Zero-shot evaluation of GPT-2."""

from experiments.tables import Row, Run, Table, Unmeasured, imported, manual_dir

_SIZES = {'124m': '117m', '355m': '345m', '774m': '762m', '1558m': '1542m'}  # as released -> as the paper calls them
_COLUMNS = {  # column -> variant of the experiment, metric, split, data
  'lambada_ppl': ('lambada', 'last_word_ppl', 'test', 'lambada'),
  'lambada_acc': ('lambada', 'filtered_accuracy', 'test', 'lambada'),
  'cbt_cn': ('cbt_cn', 'accuracy', 'valid', 'cbt'),
  'cbt_ne': ('cbt_ne', 'accuracy', 'valid', 'cbt'),
  **{
    name: (name, metric, 'test', name)
    for name, metric in (
      ('wikitext2', 'ppl_word'),
      ('ptb', 'ppl_word'),
      ('enwik8', 'bpb'),
      ('text8', 'bpc'),
      ('wikitext103', 'ppl_word'),
      ('lm1b', 'ppl_word'),
    )
  },
}
_TEXT = "the paper's detokenisers are not published; ours are in lmx/data/detokenize.py"
_DIFFERS = {
  **dict.fromkeys(('cbt_cn', 'cbt_ne', 'wikitext2', 'ptb', 'wikitext103', 'lm1b'), _TEXT),
  'lambada_acc': "the paper's list of stop words is not published; ours is another",
}


def _run(size: str) -> Run:
  """Return the run that evaluates each data set once; both LAMBADA metrics are in one file."""
  commands = [
    f'evaluate --workdir={{imported/gpt2_{size}}} --config=experiments/gpt2/zero_shot.py:{variant},size={size} '
    f'--split={split} --config.{manual_dir(data)} --output={{dir}}/{variant}.json'
    for variant, split, data in dict.fromkeys((v, split, data) for v, _, split, data in _COLUMNS.values())
  ]
  return Run(f'gpt2/zero_shot_{size}', then=tuple(commands), seeds=0)


TABLE = Table(
  'GPT-2, zero-shot',
  'Radford et al. 2019, tables 3 and 4 and sections 3.3 to 3.8',
  prints=tuple(('Radford et al. 2019', name) for name in ('3', '4', 'text')),
  context=(
    'gpt2/zeroshot/sota/*',
    *(f'gpt2/summarization/{name}/*' for name in ('bottom_up', 'lede3', 'seq2seq_attn', 'random3')),
  ),
  unmeasured=(
    Unmeasured('gpt2/summarization/gpt2_*', 'lmx has neither CNN/DailyMail nor ROUGE'),
    Unmeasured('gpt2/text/winograd', 'lmx has no Winograd schemas'),
    Unmeasured('gpt2/text/coqa', 'lmx has no CoQA, whose answers follow a conversation'),
    Unmeasured('gpt2/text/enfr', 'the pairs of sentences that the prompt begins with are not printed'),
    Unmeasured('gpt2/text/fren', 'the pairs of sentences that the prompt begins with are not printed'),
    Unmeasured('gpt2/text/nq', 'the questions and answers that the prompt begins with are not printed'),
  ),
  rows=(
    *(
      Row(
        f'gpt2/zeroshot/{printed}/{column}', f'gpt2/zero_shot_{size}', metric, variant, differs=_DIFFERS.get(column, '')
      )
      for size, printed in _SIZES.items()
      for column, (variant, metric, _, _) in _COLUMNS.items()
    ),
    Row('gpt2/text/lambada_acc_nofilter', 'gpt2/zero_shot_1558m', 'accuracy', 'lambada'),
  ),
  runs=tuple(run for size in _SIZES for run in (imported(f'gpt2_{size}'), _run(size))),
  note='The stride of the windows is not printed: ours is 512 of 1,024 tokens. Perplexities are per word of the '
  "original. The Children's Book Test is of the validation split, as in the paper.",
)
