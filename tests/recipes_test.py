"""Recipes against the papers and the released code that they name: schedules, optimizers, regularisation, lengths."""

from __future__ import annotations

import functools

import jax
import pytest

from lmx.cli import pipeline
from lmx.config import resolve, schema, semantics
from lmx.errors import InputError
from lmx.models import cfnet, registry
from lmx.optim import build, groups

awd_lstm = registry.get('awd_lstm')


def recipe(name: str) -> schema.Run:
  """The resolved config of an experiment, `folder/file.py:argument`."""
  loaded = resolve.load(f'experiments/{name}')
  return resolve.to_run(loaded, vocab_size=loaded.data.vocab_size)


@pytest.mark.parametrize(('size', 'days', 'updates'), [('base', 0.5, 100_000), ('big', 3.5, 300_000)])
def test_checkpoints_of_the_transformer_are_ten_minutes_apart(size, days, updates):
  """Vaswani et al. 2017, sections 5.2 and 6.1: hours of training over updates is the time of an update."""
  run = recipe(f'transformer/wmt14.py:{size}')
  assert run.checkpoint.every_steps == pytest.approx(600 / (days * 86_400 / updates), rel=0.1)
  assert run.checkpoint.keep_last == run.evaluation.average == (20 if size == 'big' else 5)


@pytest.mark.parametrize('name', ['pretrain.py:large', 'pretrain.py:large,recipe=v1', 'ablation.py:xlnet'])
def test_xlnet_is_pretrained_with_the_released_optimizer(name):
  """zihangdai/xlnet, train.py and model_utils.py: clip 1, min_lr_ratio 0.001, no bias correction with weight decay."""
  run = recipe(f'xlnet/{name}')
  assert (run.optim.optimizer, run.optim.clip_norm, run.optim.weight_decay) == ('bert_adam', 1.0, 0.01)
  steps = run.train.steps
  assert float(build.rate(run.optim, steps, 1)(steps)) == pytest.approx(0.001 * run.optim.lr, rel=1e-4)


def test_xlnets_bias_correction_is_an_option():
  assert recipe('xlnet/pretrain.py:large,adam=corrected').optim.optimizer == 'adamw'


def test_xlnet_reads_race_as_released():
  """zihangdai/xlnet, run_race.py: the choice put into the question, max_qa_length 128."""
  data = recipe('xlnet/tasks.py:race').data
  assert (data.dataset, data.batching.second_length, data.length) == ('race/joined', 128, 640)


@pytest.mark.parametrize('name', ['tasks.py:mnli', 'tasks.py:race', 'tasks.py:yelp_full', 'squad.py:squad2'])
def test_xlnet_is_fine_tuned_as_version_1_of_its_paper_unless_told_otherwise(name):
  """The released weights are those of version 1; run_classifier.py, run_race.py and run_squad.py: no weight decay."""
  first, second = recipe(f'xlnet/{name}'), recipe(f'xlnet/{name},recipe=v2')
  assert (first.optim.optimizer, first.optim.weight_decay, second.optim.weight_decay) == ('adamw', 0.0, 0.01)
  lengths = {'mnli': (128, 512), 'race': (640, 512)}.get(name.partition(':')[2], (512, 512))
  assert (first.data.length, second.data.length) == lengths
  rates = {'mnli': (3e-5, 2e-5), 'race': (2e-5, 2e-5), 'yelp_full': (2e-5, 1e-5), 'squad2': (3e-5, 3e-5)}
  assert (first.optim.lr, second.optim.lr) == rates[name.partition(':')[2]]


@pytest.mark.parametrize('task', ['rte', 'race', 'story_cloze'])
def test_gpt_is_fine_tuned_as_released(task):
  """openai/finetune-transformer-lm, train.py and opt.py: n_ctx, the rate of the decay, one mask over the choices."""
  run, paper = recipe(f'gpt/tasks.py:{task}'), recipe(f'gpt/tasks.py:{task},fidelity=paper')
  assert run.data.length == paper.data.length == 512
  assert (run.optim.decay_form, paper.optim.decay_form) == ('bias_corrected', 'scheduled')
  if task != 'rte':
    assert run.objective.one_mask and not paper.objective.one_mask


@pytest.mark.parametrize('name', ['general.py:wikitext103', 'general.py:small', 'lm.py:imdb', 'lm.py:trec,size=small'])
def test_both_language_models_of_ulmfit_read_windows_of_variable_length(name):
  """fastai, LanguageModelLoader: a normal around bptt; only AWD-LSTM's own recipe scales the rate with it."""
  run = recipe(f'ulmfit/{name}')
  assert run.data.batching.random_length and run.data.length == 70
  assert run.data.batching.scale_rate == name.startswith('general')
  if name.startswith('lm'):
    assert run.data.batch_size == 64


def test_ulmfits_classifier_is_regularised_as_released():
  """fastai, train_clas.py: seq2seq_reg with alpha 2 and beta 1, clip 25, batch 64 // 2; finetune_lm.py: clip 0.3."""
  run, paper = recipe('ulmfit/classifier.py:imdb,fidelity=fastai'), recipe('ulmfit/classifier.py:imdb')
  assert (run.model.alpha, run.model.beta, run.optim.clip_norm, run.data.batch_size) == (2.0, 1.0, 25.0, 32)
  assert (paper.model.alpha, paper.model.beta, paper.optim.clip_norm, paper.data.batch_size) == (0.0, 0.0, 0.0, 64)
  lm = recipe('ulmfit/lm.py:imdb,fidelity=fastai')
  assert (lm.model.alpha, lm.model.beta, lm.optim.clip_norm, lm.data.batch_size) == (2.0, 1.0, 0.3, 64)


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    # allennlp-models, training_config/pair_classification/esim.jsonnet: no L2; Peters et al. 2018, appendix: with ELMo.
    ('esim/snli.py:base', {'optim.weight_decay': 0.0, 'optim.lr': 4e-4, 'model.dropout_attention': 0.0}),
    ('esim/snli.py:elmo', {'optim.weight_decay': 1e-4, 'optim.lr': 4e-4, 'model.dropout_attention': 0.5}),
    ('esim/snli.py:chen', {'optim.weight_decay': 0.0, 'optim.clip_norm': 10.0, 'model.locked': False}),
    ('esim/pairs.py:mrpc', {'optim.weight_decay': 0.0}),
    ('esim/pairs.py:mrpc,place=both', {'optim.weight_decay': 1e-4}),
    # training_config/classification/biattentive_classification_network.jsonnet and ..._elmo.jsonnet: embedding_dropout
    ('bcn/sst.py:sst5', {'model.dropout': 0.25, 'model.dropout_feed_forward': 0.25, 'train.patience': 5}),
    ('bcn/sst.py:sst5_elmo', {'model.dropout': 0.5, 'model.dropout_feed_forward': 0.25, 'train.patience': 5}),
    # document-qa, docqa/elmo/ablate_elmo_model.py: all 24 epochs, validations 1,200 updates apart
    ('bidaf/squad.py:base', {'train.patience': 0, 'train.epochs': 24, 'train.eval_every': 1200}),
    ('bidaf/squad.py:elmo', {'train.patience': 0, 'data.batch_size': 45, 'evaluation.answer_length': 17}),
    ('bidaf/squad.py:base', {'model.dropout_characters': 0.2, 'objective.sum_ends': True, 'optim.lr': 1.0}),
    # allenai/bi-att-flow, basic/cli.py; squad/utils.py, get_best_span: answers of any length
    ('bidaf/squad.py:seo', {'data.batch_size': 60, 'train.epochs': 12, 'train.patience': 0, 'train.eval_every': 1000}),
    (
      'bidaf/squad.py:seo',
      {'optim.optimizer': 'adadelta', 'optim.lr': 0.5, 'optim.rms_decay': 0.95, 'optim.eps': 1e-8},
    ),
    ('bidaf/squad.py:seo', {'optim.ema': 0.999, 'optim.clip_norm': 0.0, 'optim.weight_decay': 0.0}),
    ('bidaf/squad.py:seo', {'model.highways': 2, 'model.E': 100, 'model.D': 100, 'model.char_characters': 8}),
    ('bidaf/squad.py:seo', {'model.dropout': 0.2, 'model.dropout_characters': 0.2, 'model.locked': False}),
    ('bidaf/squad.py:seo', {'model.char_filters': ((5, 100),), 'data.characters': 18, 'data.length': 400}),
    ('bidaf/squad.py:seo', {'objective.head': 'bidaf', 'objective.dropout': 0.2, 'objective.sum_ends': True}),
    ('bidaf/squad.py:seo', {'evaluation.which': 'last', 'evaluation.answer_length': 400}),
    # fastai, courses/dl2/imdb_scripts: tok2id.py, max_vocab 30000 and min_freq 1; pretrain_lm.py, max_vocab 60000
    ('ulmfit/lm.py:trec,fidelity=fastai', {'data.vocab_size': 30_000, 'data.min_count': 2}),
    ('ulmfit/classifier.py:imdb,fidelity=fastai', {'data.vocab_size': 30_000, 'data.min_count': 2}),
    ('ulmfit/classifier.py:trec', {'data.vocab_size': 60_000, 'data.min_count': 1}),
    ('ulmfit/general.py:wikitext103,fidelity=fastai', {'data.vocab_size': 60_000}),
    # luheng/deep_srl, theano/layer.py, line 90; allennlp, nn/util.py, lines 835 to 843: another mean
    ('srl_lstm/conll2005.py:base', {'objective.reduction': 'rows', 'optim.lr': 1.0, 'optim.clip_norm': 1.0}),
    ('srl_lstm/conll2012.py:elmo', {'objective.reduction': 'row_means', 'optim.lr': 1.0, 'optim.clip_value': 1.0}),
    # allennlp, conditional_random_field.py, line 365
    ('elmo/conll2003.py:elmo', {'objective.reduction': 'sum', 'optim.clip_norm': 5.0, 'model.mix_l2': 0.1}),
    # GroundHog, cost_layers.py, lines 1144 to 1152; experiments/nmt/state.py, lines 140 to 154
    ('bahdanau/wmt14.py', {'objective.reduction': 'sum', 'optim.clip_norm': 1.0, 'optim.eps': 1e-6, 'optim.lr': 1.0}),
    ('rnn_encdec/wmt14.py', {'objective.reduction': 'sum', 'optim.clip_norm': 1.0, 'optim.eps': 1e-6}),
    ('bahdanau/multi30k.py:rnnsearch,recipe=paper', {'objective.reduction': 'sum', 'optim.clip_norm': 1.0}),
    ('bahdanau/multi30k.py', {'objective.reduction': 'tokens', 'objective.smoothing': 0.1}),
    # nmt.matlab, trainLSTM.m, lines 289 to 294; arXiv 1409.3215, section 3.4
    ('luong/wmt14.py', {'objective.reduction': 'rows', 'optim.clip_norm': 5.0, 'optim.lr': 1.0}),
    ('luong/multi30k.py:luong,recipe=paper', {'objective.reduction': 'rows', 'optim.clip_norm': 5.0, 'optim.lr': 1.0}),
    ('rnn_encdec/wmt14.py:sutskever', {'objective.reduction': 'rows', 'optim.clip_norm': 5.0, 'optim.lr': 1.0}),
    (
      'rnn_encdec/wmt14.py:sutskever,paper=sutskever',
      {'objective.reduction': 'rows', 'optim.clip_norm': 5.0, 'optim.lr': 0.7},
    ),
  ],
)
def test_values_are_those_of_the_source(name, values):
  loaded = resolve.load(f'experiments/{name}')
  found = {key: functools.reduce(lambda section, part: section[part], key.split('.'), loaded) for key in values}
  assert found == values


@pytest.mark.parametrize(
  ('task', 'data', 'documents'), [('bidaf/squad.py', 'squad', 'first'), ('esim/snli.py', 'snli', 'all')]
)
def test_bilm_is_tuned_on_the_text_of_the_task(tmp_path, task, data, documents):
  """document-qa, docqa/elmo/lm_qa_models.py: trained again on SQuAD; Peters et al. 2018, appendix A.1: one epoch."""
  stages = pipeline.plan(f'experiments/{task}:elmo,fixed,place=input', tmp_path, [])
  bilm, tuned, run = (resolve.load(stage['config'], stage['overrides']) for stage in stages)
  assert (bilm.data.dataset, tuned.data.dataset, run.data.dataset) == ('lm1b', data, data)
  assert bilm.model.variant == tuned.model.variant == 'original' and run.model.elmo == 'input' and run.model.frozen
  assert tuned.data.batching.to_dict() == {**tuned.data.batching, 'name': 'both_ways', 'documents': documents}
  assert (tuned.train.epochs, tuned.train.init_from) == (1, f'{tmp_path}/1_bilm')
  assert (run.train.init_from, run.train.init_parts) == (f'{tmp_path}/2_tuned', ('model=model/bilm',))
  with pytest.raises(InputError, match='reads no biLM'):
    pipeline.plan(f'experiments/{task}:base', tmp_path, [])


def shapes_of(run: schema.Run):
  return {'model': jax.eval_shape(functools.partial(awd_lstm.init, run.model), jax.random.key(0)), 'objective': {}}


@pytest.mark.parametrize('variant', ['imdb', 'tiny'])
def test_released_rates_of_ulmfits_language_model_fit_its_layers(variant):
  run = recipe(f'ulmfit/lm.py:{variant},fidelity=fastai')
  rates = {name: group[1] for name, group in groups.assign(run.optim.groups, shapes_of(run)).items()}
  layers = range(run.model.N)
  assert [rates[f'model/layer_0{i}/recurrent'] for i in layers] == [1 / 6, 1 / 3, 1.0][-run.model.N :]
  assert rates['model/embed/table'] == rates['model/output/bias'] == 0.5


def test_last_layer_of_ulmfits_language_model_has_the_full_rate():
  """Section 3.2: eta of the last layer, a factor of 1 / 2.6 for each below; the softmax is the embedding."""
  run = recipe('ulmfit/lm.py:imdb')
  depth = functools.partial(awd_lstm.depth, run.model)
  powers = groups.exponents(run.optim.layer_decay_form, shapes_of(run), depth, run.model.N)['model']
  assert [powers[f'layer_0{i}']['recurrent'] for i in (2, 1, 0)] == [0, 1, 2]
  assert powers['embed']['table'] == 3 and run.optim.layer_decay == pytest.approx(1 / 2.6)


@pytest.mark.parametrize(
  ('name', 'rule'), [('ulmfit/lm.py:imdb', 'tied_rates'), ('xlnet/pretrain.py:base', 'unbroken_rows')]
)
def test_old_run_keeps_its_rule(name, rule):
  full = resolve.load(f'experiments/{name}')
  assert full.semantics[rule] == 1
  old = {key: value for key, value in full.to_dict().items() if key != 'semantics'}
  old['data']['batching'].pop('unbroken', None)  # a field that it did not have
  saved = resolve.resolve(old, saved=True)
  assert saved.semantics[rule] == 0 and not semantics.fixed_since(saved)
  for path, value in semantics.RULES[rule].old.items():
    assert functools.reduce(lambda section, key: section[key], path.split('.'), saved) == value


@pytest.mark.parametrize(('head', 'reach'), [('fcn', 23), ('pool', None), ('m1', None), ('m4', None)])
def test_only_context_reaches_the_far_pixels_of_scenes(head, reach):
  """Those that are measured are more than 24 px from any object."""
  run = recipe(f'cfnet/scenes.py:{head}')
  assert cfnet.pixel_reach(run.model, run.data.length, run.objective.align_corners) == reach
  assert 24.0 in run.objective.distances and run.data.eval_length == 0
