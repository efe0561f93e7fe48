"""ELMo: its biLM, the gain from its vectors on public tasks, and its tuning on their text."""

from experiments.tables import GPUS, Computed, Row, Run, Table, Unmeasured, from_run, manual_dir, measured

# Ten epochs took three GTX 1080 two weeks (README of bilm-tf).
LM1B = Run('elmo/lm1b', 'experiments/elmo/lm1b.py:original', (manual_dir('lm1b'),), seeds=0, needs=GPUS, gpu_hours=18.0)
_ENTITIES = 'experiments/elmo/conll2003.py'
_ROLES = 'experiments/srl_lstm/conll2012.py'
_SENNA = 'data.vectors={data.senna}'
_GLOVE = 'data.vectors={data.glove_840b}'
# Table 7: task texts, read from the user's files with one sentence per line.
_TEXTS = {
  'snli': 'snli_text',
  'conll2003': 'conll2003_text',
  'squad_context': 'squad_contexts',
  'squad_questions': 'squad_questions',
  'sst': 'sst_text',
}
# Semantic roles: run -> its option, and validation rows of tables 2 and 3 -> run.
_ROLE_RUNS = {
  'elmo': 'elmo',
  'last': 'elmo,mix=last',
  'lambda1': 'elmo,mix_l2=1',
  'both': 'elmo,place=both',
  'output': 'elmo,place=output',
}
_ROLE_ROWS = {
  'layers/srl/baseline': '',
  'layers/srl/last_only': '_last',
  'layers/srl/all_lambda1': '_lambda1',
  'layers/srl/all_lambda0.001': '_elmo',
  'location/srl/input': '_elmo',
  'location/srl/input_output': '_both',
  'location/srl/output': '_output',
}


def _roles(name: str, option: str, *settings: str) -> Run:
  """Return the training of semantic roles, evaluated on both splits."""
  data = (manual_dir('conll2012'), 'data.vectors={data.glove_6b}', *settings)
  return Run(f'elmo/conll2012{name}', f'{_ROLES}:{option}', data, (measured('valid'),), gpu_hours=48.0)


def _tuned(data: str) -> Run:
  """Return an epoch of the biLM on a text, with the metrics before and after."""
  here = f'--config.{manual_dir(data)} --split=valid --no-baselines'
  before = f'evaluate --workdir={{elmo/lm1b}} --config=experiments/elmo/text.py:original {here}'
  settings = (
    manual_dir(data),
    from_run('elmo/lm1b'),
    'data.tokenizer_path={elmo/lm1b}/tokenizer',
    'evaluation.split=valid',
  )
  then = (f'{before} --output={{dir}}/before.json',)
  return Run(f'elmo/tuned_{data}', 'experiments/elmo/text.py:original', settings, then, seeds=0)


def _tuned_for(task: str) -> Run:
  """Return an epoch of the biLM on the text of a task, from which its runs with ELMo start (section 3.4)."""
  return Run(
    f'elmo/tuned_{task}', f'experiments/elmo/tuned.py:{task}', (manual_dir(task), from_run('elmo/lm1b')), seeds=0
  )


# Rows of SNLI: table, metric's file and run.
_SNLI = {
  'main/snli/baseline': ('results', 'base'),
  'main/snli/elmo': ('results', 'elmo'),
  'layers/snli/baseline': ('valid', 'base'),
  'layers/snli/last_only': ('valid', 'last'),
  'layers/snli/all_lambda1': ('valid', 'lambda1'),
  'layers/snli/all_lambda0.001': ('valid', 'elmo'),
  'location/snli/input': ('valid', 'input'),
  'location/snli/input_output': ('valid', 'elmo'),
  'location/snli/output': ('valid', 'output'),
}
_SNLI_ARGS = {
  'base': 'base,fixed',
  'elmo': 'elmo,fixed',
  'last': 'elmo,fixed,mix=last',
  'lambda1': 'elmo,fixed,mix_l2=1.0',
  'input': 'elmo,fixed,place=input',
  'output': 'elmo,fixed,place=output',
}


def _snli(name: str) -> Run:
  """Return ESIM on SNLI, with metrics on both splits; five seeds where the paper has them."""
  settings = (manual_dir('snli'), _GLOVE)
  then = ('evaluate --workdir={dir} --split=valid --no-baselines --output={dir}/valid.json',)
  seeds, start = (5, ()) if name == 'base' else (5 if name == 'elmo' else 1, (from_run('elmo/tuned_snli'),))
  return Run(
    f'esim/snli_{name}',
    f'experiments/esim/snli.py:{_SNLI_ARGS[name]}',
    (*settings, *start),
    then,
    seeds=seeds,
    gpu_hours=1.0 if start else 0.3,
  )


# SQuAD row -> run, with its option and settings. Tables 2 and 3 report the validation split.
_SQUAD = {
  'main/squad/baseline': 'base',
  'main/squad/elmo': 'elmo',
  'layers/squad/baseline': 'base',
  'layers/squad/last_only': 'last',
  'layers/squad/all_lambda1': 'lambda1',
  'layers/squad/all_lambda0.001': 'lambda0.001',
  'location/squad/input': 'input',
  'location/squad/input_output': 'elmo',
  'location/squad/output': 'output',
}
_SQUAD_RUNS = {
  'base': ('base,fixed', ()),
  'elmo': ('elmo,fixed', ()),
  'last': ('elmo,fixed', ('model.mix=last',)),
  'lambda1': ('elmo,fixed', ('model.mix_l2=1.0',)),
  'lambda0.001': ('elmo,fixed', ('model.mix_l2=0.001',)),
  'input': ('elmo,fixed,place=input', ()),
  'output': ('elmo,fixed,place=output', ()),
}
_HIDDEN = 'printed: the test split, which is not public; ours: the validation split, on which the model is selected'


def _squad(name: str) -> Run:
  """Return bidirectional attention flow on SQuAD 1.1."""
  option, settings = _SQUAD_RUNS[name]
  start = (from_run('elmo/tuned_squad'),) if name != 'base' else ()
  data = (manual_dir('squad'), _GLOVE)
  return Run(
    f'bidaf/squad_{name}',
    f'experiments/bidaf/squad.py:{option}',
    (*data, *start, *settings),
    seeds=1,
    gpu_hours=8.0 if start else 3.0,
  )


# Coreference is not a model of one row.
_COREFERENCE = 'not built: the model (Lee et al. 2017) reads a whole document, scores its spans and links each to one '
_COREFERENCE += 'before it, which is no row of words with labels, and its data, OntoNotes, is licensed'


TABLE = Table(
  'ELMo',
  'Peters et al. 2018 (arXiv 1802.05365), tables 1 to 3 and 5 to 7, section 3.4',
  rows=(
    Row('elmo/bilm/avg_ppl', 'elmo/lm1b', 'average_ppl'),
    *(Row(f'elmo/{id}', f'esim/snli_{run}', 'accuracy', file) for id, (file, run) in _SNLI.items()),
    *(
      Row(f'elmo/{id}', f'bidaf/squad_{run}', 'f1', differs=_HIDDEN if id.startswith('main') else '')
      for id, run in _SQUAD.items()
    ),
    Row('elmo/main/ner/baseline', 'elmo/conll2003', 'span_f1'),
    Row('elmo/main/ner/elmo', 'elmo/conll2003_elmo', 'span_f1'),
    Row('elmo/main/sst5/baseline', 'bcn/sst5', 'accuracy'),
    Row('elmo/main/sst5/elmo', 'bcn/sst5_elmo', 'accuracy'),
    Row('elmo/main/srl/baseline', 'elmo/conll2012', 'span_f1'),
    Row('elmo/main/srl/elmo', 'elmo/conll2012_elmo', 'span_f1'),
    *(Row(f'elmo/{id}', f'elmo/conll2012{run}', 'span_f1', 'valid') for id, run in _ROLE_ROWS.items()),
    *(
      row
      for printed, data in _TEXTS.items()
      for row in (
        Row(f'elmo/domain_tuning/{printed}/before', f'elmo/tuned_{data}', 'average_ppl', 'before'),
        Row(f'elmo/domain_tuning/{printed}/after', f'elmo/tuned_{data}', 'average_ppl'),
      )
    ),
  ),
  runs=(
    LM1B,
    Run('elmo/conll2003', f'{_ENTITIES}:base', (manual_dir('conll2003'), _SENNA), seeds=5),
    Run(
      'elmo/conll2003_elmo',
      f'{_ENTITIES}:elmo',
      (manual_dir('conll2003'), _SENNA, from_run('elmo/lm1b')),
      seeds=5,
      gpu_hours=1.0,
    ),
    *(_snli(name) for name in _SNLI_ARGS),
    Run('bcn/sst5', 'experiments/bcn/sst.py:sst5,fixed', (manual_dir('sst5'), _GLOVE), seeds=5, gpu_hours=0.5),
    Run(
      'bcn/sst5_elmo',
      'experiments/bcn/sst.py:sst5_elmo,fixed',
      (manual_dir('sst5'), _GLOVE, from_run('elmo/lm1b')),
      seeds=5,
      gpu_hours=2.0,
    ),
    *(_squad(name) for name in _SQUAD_RUNS),
    _roles('', 'base'),
    *(_roles(f'_{name}', option, from_run('elmo/lm1b')) for name, option in _ROLE_RUNS.items()),
    *(_tuned(data) for data in _TEXTS.values()),
    *(_tuned_for(task) for task in ('squad', 'snli')),
  ),
  prints=tuple(('Peters et al. 2018', table) for table in ('1', '2', '3', '5', '6', '7', 'text')),
  context=(
    'elmo/main/*/previous',
    'elmo/wsd/[!b]*',
    'elmo/pos/[!b]*',
    'elmo/bilm/cnn_big_lstm',
  ),
  unmeasured=(
    Unmeasured('elmo/main/coref/[!p]*', _COREFERENCE),
    Unmeasured('elmo/wsd/bilm_*', 'lmx has no word sense disambiguation'),
    Unmeasured('elmo/pos/bilm_*', "lmx's tagger has no linear readout of a single biLM layer"),
  ),
  computed=tuple(
    Computed(f'elmo/main/{task}/delta/{name}', rule, ((f'elmo/main/{task}/baseline',), (f'elmo/main/{task}/elmo',)))
    for task in ('squad', 'snli', 'srl', 'ner', 'sst5')
    for name, rule in (('increase', 'increase'), ('relative_increase', 'error_reduction'))
  ),
)
