"""ELMo: its biLM, and the gain from its vectors on public tasks."""

from experiments.tables import GPUS, Row, Run, Table, from_run, manual_dir

TABLE = Table(
  'ELMo',
  'Peters et al. 2018 (arXiv 1802.05365), section 3.4; Devlin et al. 2019 (arXiv 1810.04805), table 1',
  rows=(
    Row('elmo/bilm/avg_ppl', 'elmo/lm1b', 'average_ppl'),
    Row(
      'bert/glue_test/bilstm_elmo_attn/sst2',
      'elmo/sst',
      'accuracy',
      differs="printed: GLUE's test server, with attention; ours: the public test split",
    ),
  ),
  runs=(
    Run('elmo/lm1b', 'experiments/elmo/lm1b.py:original', (manual_dir('lm1b'),), seeds=0, needs=GPUS),
    Run(
      'elmo/sst',
      'experiments/elmo/sst.py:elmo,bilm=original,phrases',
      (manual_dir('sst2'), from_run('elmo/lm1b')),
      seeds=5,
    ),
  ),
)
