"""Profiles of a training, and `lmx profile`."""

from __future__ import annotations

import collections
import contextlib
import gzip
import json

import pytest
from etils import epath
from jax.profiler import ProfileData

from lmx import train
from lmx.cli import main as cli
from lmx.compilation import hlo, profile, roofline
from lmx.config import resolve
from lmx.errors import InputError
from lmx.reporting import ledger, utilisation
from lmx.runs import profiles

# Layers so wide that their products take longer than all else.
SETTINGS = (
  *('parallel.data=1', 'evaluation.baselines=false', 'samples.count=0', 'train.steps=7', 'train.log_every=1'),
  *('train.eval_every=5', 'train.profile=3:8'),  # the validation ends the first profile
  *('model.D=512', 'model.F=512', 'optim.optimizer=sgd', 'optim.weight_decay=0'),
  *('data.length=32', 'data.batch_size=8', 'data.dataset=text_files'),
)


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """Work directory of a tiny GPT-2 that was profiled."""
  folder = tmp_path_factory.mktemp('profiled')
  for name in ('train', 'valid', 'test'):
    (folder / f'{name}.txt').write_text('the cat sat on the mat\n\n' * (400 if name == 'train' else 100))
  config = resolve.load('experiments/gpt2/quickstart.py:tiny', [*SETTINGS, f'data.manual_dir={folder}'])
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(utilisation, 'AFTER', 0.0)
    assert train.train(config, folder / 'run') == 0
  return folder / 'run'


@pytest.fixture(scope='module')
def profiled(workdir):
  return profile.load(profile.open_run('--workdir', workdir)[0])


def program(workdir):
  (file,) = workdir.glob(f'{profiles.FOLDER}/updates_000003_000005/host-000.jit_train_step.*.hlo.gz')
  return hlo.Program(gzip.decompress(file.read_bytes()).decode())


def test_profile_names_the_layers(profiled):
  places = {(layer, direction) for layer, direction, *_ in profiled.layers()}
  assert places >= {(f'layer_{i:02d}', way) for i in range(2) for way in ('forward', 'backward')}
  assert ('optimizer', 'update') in places and ('causal_lm', 'forward') in places
  paths = {one.path for one in profiled.operations if one.layer == 'layer_01' and one.direction == 'forward'}
  assert any(path.startswith('attention/attend/') for path in paths) and any(p.startswith('mlp/in/') for p in paths)
  assert sum(one.share for one in profiled.operations) == pytest.approx(1)
  unnamed = sum(one.share for one in profiled.operations if not one.layer)
  assert unnamed < 0.2  # such as the norm of the gradients


def test_top_operations_are_those_of_the_compiled_program(profiled, workdir):
  """The costliest is in the first quarter, by the fastest of its runs, because other processes interrupt a CPU."""
  compiled, limits = program(workdir), roofline.Limits(1.0, 1.0, 1.0)
  work = {}
  for name, instructions in compiled.computations.items():
    types = {one.name: one.result for one in instructions}
    if name not in compiled.fused:
      work |= {one.name: roofline.kernel(one, compiled.body(one), types, limits).operations for one in instructions}
  found = {one.name: one for one in profiled.operations if one.program == 'jit_train_step'}
  assert found.keys() <= work.keys() and all(one.flops == work[name] for name, one in found.items())
  costliest = max(work, key=lambda name: work[name])
  assert work[costliest] == 2 * 8 * 32 * 512 * 3 * 512
  assert found[costliest].layer.startswith('layer_') and found[costliest].path.startswith('attention/qkv/')
  assert found[costliest].count == 1 and found[costliest].roofline > 0
  runs = collections.defaultdict(list)
  for event in profile.read_events((epath.Path(profiled.folder) / 'host-000.xplane.pb').read_bytes()):
    runs[event.name].append(event.seconds)
  top = sorted(found, key=lambda name: -min(runs[name]))[: len(found) // 4]
  assert costliest in top


def test_every_stored_instruction_has_its_time_once_per_update(profiled):
  assert profiled.updates == 3 and profiled.record['first'] == 3
  products = [one for one in profiled.operations if one.flops and one.layer.startswith('layer_')]
  assert products and all(one.count == 1 for one in products)
  assert 0 < profiled.busy_seconds and profiled.step_seconds > max(one.seconds for one in products)


def test_command_prints_and_writes_the_profile(workdir, tmp_path, capsys):
  output = tmp_path / 'profile.json'
  assert cli.main(['profile', f'--workdir={workdir}', '--top=3', f'--json={output}']) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[3].split() == list(profile.HEAD) and lines[7] == ''
  found = json.loads(output.read_text())
  assert found['operations'][0]['name'] == lines[4].split()[-1]
  assert {row['layer'] for row in found['layers']} >= {'layer_00', 'layer_01', 'optimizer'}
  for option, expected in (('--updates=1_2', '3_5 or 6_7'), ('--host=3', '0')):
    assert cli.main(['profile', f'--workdir={workdir}', option]) == 2
    assert capsys.readouterr().err.endswith(f'{option.replace("=", ": got ")}; expected {expected}\n')


def test_report_shows_the_profile_and_the_utilisation(workdir, tmp_path):
  page = tmp_path / 'report.html'
  assert cli.main(['report', str(workdir), f'--output={page}']) == 0
  text = page.read_text()
  assert 'id="profile"' in text and '<td>layer_01</td>' in text and 'updates 6 to 7 of host 0' in text
  assert 'Model FLOPs utilisation (MFU)' in text


def test_run_without_a_profile(tmp_path):
  with pytest.raises(InputError, match='--workdir: got'):
    profile.open_run('--workdir', tmp_path)


def test_log_and_results_have_the_utilisation(workdir):
  results = json.loads((workdir / 'results.json').read_text())['utilisation']
  for name in ('tokens_per_second_per_chip', 'step_seconds', 'step_seconds_p99', 'peak_memory_bytes'):
    assert results[name] > 0
  records = [json.loads(line) for line in (workdir / 'metrics.jsonl').read_text().splitlines()]
  last = [record for record in records if record['split'] == 'train'][-1]
  assert last['mfu'] > 0 and results['mfu'] > 0
  work = last['model_flops_per_second'] / last['tokens_per_second']  # per token
  assert work > 3 * 2 * 2 * 4 * 512 * 512  # of the attention's kernels


TPU = """
planes { name: "/device:TPU:0"
  lines { name: "XLA Modules" events { metadata_id: 2 offset_ps: 0 duration_ps: 9000000 } }
  lines { name: "XLA Ops"
    events { metadata_id: 1 offset_ps: 1000 duration_ps: 2000000 stats { metadata_id: 1 uint64_value: 17 } }
    events { metadata_id: 1 offset_ps: 4000000 duration_ps: 4000000 stats { metadata_id: 1 uint64_value: 17 } } }
  event_metadata { key: 1 value { id: 1 name: "%fusion.3 = f32[8]{0} fusion(%p), kind=kLoop" } }
  event_metadata { key: 2 value { id: 2 name: "jit_train_step(17)" } }
  stat_metadata { key: 1 value { id: 1 name: "program_id" } } }
"""
GPU = """
planes { name: "/device:GPU:0"
  lines { name: "Stream #13(Compute)"
    events { metadata_id: 1 offset_ps: 0 duration_ps: 3000000
      stats { metadata_id: 1 str_value: "gemm_fusion_dot.5" } stats { metadata_id: 2 str_value: "jit_train_step" } } }
  event_metadata { key: 1 value { id: 1 name: "gemm_fusion_dot_5" } }
  stat_metadata { key: 1 value { id: 1 name: "hlo_op" } }
  stat_metadata { key: 2 value { id: 2 name: "hlo_module" } } }
"""


def test_traces_of_a_tpu_and_a_gpu():
  events = lambda text: list(profile.read_events(ProfileData.text_proto_to_serialized_xspace(text)))
  assert [event[1:] for event in events(TPU)] == [('', 17, 'fusion.3', 2e-6), ('', 17, 'fusion.3', 4e-6)]
  assert [event[1:] for event in events(GPU)] == [('jit_train_step', 0, 'gemm_fusion_dot.5', 3e-6)]


def test_scopes_of_names():
  cases = {
    'jit(f)/jvp(causal_lm)/layer_03/jit(_apply)/Block/mlp/in/affine/dot/dot_general': (
      *('layer_03', 'forward', 'mlp/in/affine/dot/dot_general'),
    ),
    'jit(f)/transpose(jvp(causal_lm))/while/body/closed_call/layers_00_11/jit(_apply)/Block/norm_1/mul': (
      *('layers_00_11', 'backward', 'norm_1/mul'),
    ),
    'jit(f)/transpose(jvp(tag))/checkpoint/rematted_computation/layer_00/lstm/add': (
      *('layer_00', 'recomputation', 'lstm/add'),
    ),
    'jit(f)/cond/branch_1_fun/optimizer/mul': ('optimizer', 'update', 'mul'),
    'jit(f)/jvp(causal_lm)/layer_00/Block/attention/attention.attend/attend/exp': (
      *('layer_00', 'forward', 'attention/attend/exp'),
    ),
    'jit(f)/transpose(jvp(causal_lm))/(layer_00/jit(_apply)/Block/norm_1/mul:layer_norm/reduce_sum:add)': (
      *('layer_00', 'backward', 'norm_1/mul and 2 more'),
    ),
    'add': ('', '', 'add'),
    '': ('', '', ''),
  }
  assert {name: tuple(profile.read_scope(name)) for name in cases} == cases


def test_limits_of_devices():
  assert roofline.of_device('NVIDIA H200').bandwidth == 4.8e12
  chip = roofline.of_device('TPU v5 lite')
  assert chip.peak == 197e12 and chip.peak_float32 == chip.peak / 6
  assert roofline.of_device('cpu') is None


class Note:
  """The parts of a log that a profiler uses."""

  def __init__(self):
    self.notes, self.ledger = [], ledger.Ledger()

  def note(self, text):
    self.notes.append(text)

  def paused(self):
    return contextlib.nullcontext()


def test_other_hosts_and_stopped_trainings_on_a_bucket(bucket):
  """A host that is not named traces nothing; a training that stops keeps the updates so far, one that fails none."""
  workdir, logger = bucket, Note()
  run = lambda hosts: profiles.Profiler('1:9', hosts, workdir, lambda: None, logger)
  with run((1,)) as profiler, profiler.update(1):
    pass
  with pytest.raises(ZeroDivisionError), run((0,)) as profiler, profiler.update(1):
    raise ZeroDivisionError
  assert profile.folders(workdir) == []
  with run(()) as profiler:
    for update in (1, 2):
      with profiler.update(update):
        pass
  (folder,) = profile.open_run('--workdir', workdir)
  assert profile.load(folder).updates == 2
  assert folder.name == 'updates_000001_000002' and 'updates 1 to 2' in logger.notes[0]


def test_validation_is_in_no_profile(workdir):
  folders = profile.open_run('--workdir', workdir)
  assert [folder.name for folder in folders] == ['updates_000003_000005', 'updates_000006_000007']
  programs = {one.program for folder in folders for one in profile.load(folder).operations}
  assert 'jit_train_step' in programs and not any('eval' in name for name in programs)
