"""BERT on SQuAD: the paper's runs."""

from experiments.tables import Row, Run, Table, Unmeasured, from_run, imported, manual_dir

HOURS = {'base': 0.45, 'large': 1.4}  # H100 hours in float32, for three epochs of 88,000 windows of 384
_SEVEN = 'printed: seven systems of different pre-trainings and seeds; ours: seven seeds of the one that was released'
_SERVER = "only scored by SQuAD's server, which has the test questions"


def tuned(
  name: str, start: str, data: str = 'squad', options: str = '', *, hours: float = HOURS['base'], seeds: int = 3
) -> Run:
  """Return the fine-tuning of the run `start` on SQuAD by the recipe of section 4.2 or 4.3, NAME_DATA."""
  config = ','.join([f'experiments/bert/squad.py:{data}', *filter(None, [options])])
  return Run(f'{name}_{data}', config, (manual_dir(data), from_run(start)), seeds=seeds, gpu_hours=hours)


TABLE = Table(
  'BERT, SQuAD',
  'Devlin et al. 2019 (arXiv 1810.04805), tables 2 and 3',
  rows=(
    *(
      Row(f'bert/squad1.1/{size}/dev_{name}', f'bert/{size}_squad', metric, note='selection unprinted')
      for size in ('base', 'large')
      for name, metric in (('em', 'exact_match'), ('f1', 'answer_f1'))
    ),
    *(
      Row(f'bert/squad1.1/large_ens/dev_{name}', 'bert/large_squad_ensemble', metric, differs=_SEVEN)
      for name, metric in (('em', 'exact_match'), ('f1', 'answer_f1'))
    ),
    Row('bert/squad2.0/large/dev_em', 'bert/large_squad2', 'best_exact_match'),
    Row('bert/squad2.0/large/dev_f1', 'bert/large_squad2', 'best_f1'),
  ),
  runs=(
    imported('bert_base'),
    imported('bert_large'),
    tuned('bert/base', 'imported/bert_base'),
    tuned('bert/large', 'imported/bert_large', hours=HOURS['large'], seeds=7),
    tuned('bert/large', 'imported/bert_large', 'squad2', hours=HOURS['large']),
    Run(
      'bert/large_squad_ensemble',
      then=(
        'evaluate --workdir={bert/large_squad:0} --ensemble={bert/large_squad:1-6} --split=valid --which=last '
        '--output={dir}/results.json',
      ),
      seeds=0,
    ),
  ),
  note='From the released weights; no TriviaQA; development sets. In version 2.0 the threshold of no '
  'answer is chosen on the same set, as in the paper.',
  prints=(('Devlin et al. 2019', '2'), ('Devlin et al. 2019', '3')),
  context=(
    *(f'bert/squad1.1/{name}/*' for name in ('human', 'nlnet_ens', 'qanet_ens', 'bidaf_elmo', 'rm_reader_ens')),
    *(f'bert/squad2.0/{name}/*' for name in ('human', 'mirmrc', 'nlnet', 'unet_ens', 'slqa')),
  ),
  unmeasured=(
    Unmeasured('bert/squad1.1/large_triviaqa/dev_*', 'fine-tuned on TriviaQA first, which lmx does not read'),
    Unmeasured('bert/squad1.1/large_ens_triviaqa/dev_*', 'fine-tuned on TriviaQA first, which lmx does not read'),
    Unmeasured('bert/squad1.1/large_triviaqa/test_*', _SERVER),
    Unmeasured('bert/squad1.1/large_ens_triviaqa/test_*', _SERVER),
    Unmeasured('bert/squad2.0/large/test_*', _SERVER),
  ),
)
