"""Translation of lines: order, padding, empty and long lines, draws, alignments; over both encoder-decoders."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest

from lmx.data.batching import translation as batching
from lmx.data.corpus import Split
from lmx.data.tokenizers import build, words
from lmx.decoding import generate, translate
from lmx.decoding.translate import Options
from lmx.errors import InputError, InputWarning
from lmx.models import registry
from lmx.registry import complete
from lmx.types import Model
from tests import drawn, tiny_translator, untrained

tiny = complete(Model, tiny_translator)

WORDS = [f'w{i}' for i in range(40)]
TOKENIZER = words.Words(['<eos>', '<unk>', *WORDS], 'prose')
RNG = np.random.default_rng(0)
LINES = [' '.join(RNG.choice(WORDS, n)) for n in (5, 1, 7, 3)]
MODELS = {
  'transformer': ('transformer', {}),
  'rnnsearch': ('bahdanau', {}),
  'rnnencdec': ('rnn_encdec', {}),
  'luong': ('luong', {}),
  'luong_global': ('luong', {'window': 'global'}),
}


@functools.cache
def _translator(name: str = 'tiny'):
  if name == 'tiny':
    model, cfg = tiny, tiny.Config(V=TOKENIZER.vocab_size, T=30)
  else:
    model, changes = registry.get(MODELS[name][0]), MODELS[name][1]
    cfg = registry.config(MODELS[name][0], 'tiny', V=TOKENIZER.vocab_size, **changes)
  # Scores that differ enough for the choice to depend on the source.
  params = drawn.params(model.init, cfg, std=0.4 if name == 'transformer' else 0.6)
  return translate.Translator(model, cfg, params, TOKENIZER)


@pytest.mark.parametrize(
  'name', ['transformer', 'luong', *(pytest.param(name, marks=pytest.mark.slow) for name in ('rnnsearch', 'rnnencdec'))]
)
def test_padding_and_other_lines_never_change_a_score(name):
  """A line's translations, log-probabilities and scores in a batch are those alone with more padding."""
  translator = _translator(name)
  options = Options(beam=4, max_extra=6)
  together = translate.translate(translator, LINES, options)
  assert len({one[0].text for one in together}) > 1  # they differ by source
  for line, whole in zip(LINES, together, strict=True):
    (alone,) = _with_padding(translator, [line], options)
    assert [h.tokens for h in alone] == [h.tokens for h in whole]
    np.testing.assert_allclose([h.log_p for h in alone], [h.log_p for h in whole], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose([h.score for h in alone], [h.score for h in whole], rtol=1e-5, atol=1e-5)
  # The search's log-probability is that of teacher forcing, whatever stands beside and behind.
  best = [np.asarray(h[0].tokens) for h in together]
  forced = translate.log_probabilities(translator, translator.sources(LINES), best)
  np.testing.assert_allclose([x.sum() for x in forced], [h[0].log_p for h in together], rtol=1e-4, atol=1e-4)


def _with_padding(translator, lines, options):
  """Translations from batches whose sources are padded to 24 positions."""
  usual, translate.padded_length = translate.padded_length, lambda length, limit: 24
  try:
    return translate.translate(translator, lines, options)
  finally:
    translate.padded_length = usual


def test_lines_keep_their_order_and_empty_ones_stay_empty():
  translator, options = _translator(), Options(beam=2)
  lines = [LINES[0], '', LINES[2], '   ', LINES[1], LINES[3]]
  found = translate.translate(translator, lines, options)
  assert [h[0].text == '' and h[0].tokens == () for h in found] == [False, True, False, True, False, False]
  for line, hypotheses in zip(lines, found, strict=True):
    alone = translate.translate(translator, [line], options)[0]
    assert [(h.text, h.tokens) for h in hypotheses] == [(h.text, h.tokens) for h in alone]
    # To the last digits of a sum, whose order may go by the rows of a batch.
    numbers = [[(h.log_p, h.score) for h in each] for each in (hypotheses, alone)]
    np.testing.assert_allclose(*numbers, rtol=1e-5)
  assert translate.translate(translator, [], options) == []


def _with_unknown(name):
  """A translator and its hypotheses, among whose tokens the most frequent word is the unknown one."""
  found = translate.translate(translator := _translator(name), LINES, Options(beam=4, max_extra=6, allow_unk=True))
  ids = [i for hypotheses in found for one in hypotheses for i in one.tokens if i > 1]
  tokens = list(TOKENIZER.tokens)
  most = max(set(ids), key=ids.count)
  tokens[1], tokens[most] = tokens[most], '<unk>'
  return dataclasses.replace(translator, tokenizer=words.Words(tokens, 'prose')), found


@pytest.mark.parametrize('name', ['luong_global', pytest.param('rnnsearch', marks=pytest.mark.slow)])
def test_unk_replacement_and_coverage_use_attention(name, tmp_path):
  translator, _ = _with_unknown(name)
  lines = [*LINES, '', 'w3 nowhere w4 w5']
  plain = Options(beam=4, max_extra=6, allow_unk=True)
  (tmp_path / 'words').write_text('w3 drei\nw3 x\nnowhere nirgends\n')
  chosen = {'replace_unknown': True, 'coverage_penalty': 20.0}
  chosen['dictionary'] = translate.read_dictionary(str(tmp_path / 'words'))
  before = translate.translate(translator, lines, plain)
  after = translate.translate(translator, lines, dataclasses.replace(plain, **chosen))
  sources, replaced, moved = translator.sources(lines), 0, 0
  for line, source, old, new in zip(lines, sources, before, after, strict=True):
    if not line:
      assert new == old
      continue
    expected = []
    targets = [np.array(one.tokens, np.int32) for one in old]
    for one, a_TS in zip(old, translate.alignments(translator, [source] * len(old), targets), strict=True):
      penalty = sum(np.log(min(sum(a_TS[j, i] for j in range(len(one.tokens))), 1.0)) for i in range(len(source)))
      text = []
      for token, a_S in zip(one.tokens, a_TS, strict=True):
        word = translator.tokenizer.tokens[token]
        if word == '<unk>':
          word = line.split()[int(a_S[:-1].argmax())]
          word, replaced = {'w3': 'drei', 'nowhere': 'nirgends'}.get(word, word), replaced + 1
        text += [word] if word != '<eos>' else []
      expected.append((one.score + 20 * penalty, ' '.join(text), one.log_p))
    ranked = sorted(expected, key=lambda each: -each[0])
    moved += ranked != expected
    assert [one.text for one in new] == [text for _, text, _ in ranked]
    np.testing.assert_allclose([one.score for one in new], [score for score, *_ in ranked], rtol=1e-4)
    np.testing.assert_allclose([one.log_p for one in new], [log_p for *_, log_p in ranked], rtol=1e-5)
  assert replaced and moved


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'coverage_penalty': 0.2, 'beam': 1}, 'coverage_penalty: got beam 1'),
    ({'coverage_penalty': 0.2, 'sample': True}, 'coverage_penalty: got sampling'),
    ({'replace_unknown': True}, 'replace_unknown: got'),
    ({'dictionary': {'a': 'b'}}, 'dictionary: got'),
  ],
)
def test_options_missing_their_prerequisite_are_rejected(options, message):
  with pytest.raises(InputError, match=message):
    Options(**options)


def test_attention_and_words_are_needed(tmp_path):
  translator, options = _translator('rnnencdec'), Options(replace_unknown=True, allow_unk=True)
  with pytest.raises(InputError, match='rnn_encdec" has no attention'):
    translate.translate(translator, LINES, options)
  with pytest.raises(InputError, match='rnn_encdec" has no attention'):
    translate.translate(translate.combine([translator, _translator('luong')]), LINES, options)
  subwords = dataclasses.replace(_translator(), tokenizer=build.train('bpe', LINES, vocab_size=300))
  with pytest.raises(InputError, match='tokenizer "bpe"'):
    translate.check_options(subwords, options)
  (tmp_path / 'pairs').write_text('a b\nc\n')
  with pytest.raises(InputError, match='line 2: got 1 words'):
    translate.read_dictionary(str(tmp_path / 'pairs'))
  (tmp_path / 'twice').write_text('a b\nc d\na b\na e\n')
  with pytest.warns(InputWarning, match=r'twice: got 1 words .*\(line 4'):
    assert translate.read_dictionary(str(tmp_path / 'twice')) == {'a': 'b', 'c': 'd'}


def test_sources_are_read_as_in_training():
  sources = _translator().sources(LINES[:2])
  tokens = [ids for pair in zip(sources, sources, strict=True) for ids in pair]
  ids, offsets = np.concatenate(tokens), np.cumsum([0, *map(len, tokens)])
  split = Split('test', ids, offsets, None, None, {'tokens': len(ids)})
  made = batching.Translation(
    split, 2, 8, start_id=0, end_id=0, buckets=(), vocab_size=TOKENIZER.vocab_size, seed=0, train=False
  )(0)
  ((chosen, source),) = translate.batches(sources, 16, None)
  for row, i in enumerate(chosen):
    for name in ('source_BS', 'source_valid_BS'):
      np.testing.assert_array_equal(source[name][row], made[name][i])


def test_long_line_is_reported_or_truncated():
  translator = _translator()
  long = ' '.join(WORDS[:30])
  with pytest.raises(InputError, match='line 12 has 30 tokens.*30 positions'):
    translate.translate(translator, [LINES[0], long], Options(), first=11)
  with pytest.warns(InputWarning, match='line 1 has 30 tokens'):
    found = translate.translate(translator, [long], Options(beam=2), truncate=True)
  assert found == translate.translate(translator, [' '.join(WORDS[:29])], Options(beam=2))


def test_positional_score_bounds_only_the_source():
  cfg = registry.config('bahdanau', 'tiny', V=TOKENIZER.vocab_size, score='location', S=10)
  params = drawn.params(registry.get('bahdanau').init, cfg)
  translator = translate.Translator(registry.get('bahdanau'), cfg, params, TOKENIZER)
  options = Options(beam=1, max_extra=6)
  # With the end mark as many as the score knows, which their padding would go beyond.
  (found,) = translate.translate(translator, [' '.join(WORDS[:9])], options)[0]
  forced = translate.log_probabilities(translator, translator.sources([' '.join(WORDS[:9])]), [found.tokens])[0]
  assert forced.sum() == pytest.approx(found.log_p, rel=1e-4)
  assert len(found.tokens) == 15 or found.tokens[-1] == TOKENIZER.eos_id
  long, whole = [' '.join(WORDS[:13])], [' '.join(WORDS[:9])]
  with pytest.raises(InputError, match='line 1 has 13 tokens.*10 positions'):
    translate.translate(translator, long)
  with pytest.warns(InputWarning, match='line 1 has 13 tokens'):
    cut = translate.translate(translator, long, options, truncate=True)
  assert cut == translate.translate(translator, whole, options)


def test_unknown_words_are_written_only_on_request():
  translator = _translator()
  favoured = translator.params['bias'] + 9 * (np.arange(TOKENIZER.vocab_size) == TOKENIZER.unk_id)
  translator = dataclasses.replace(translator, params={**translator.params, 'bias': favoured})
  for allowed in (False, True):
    found = translate.translate(translator, LINES, Options(beam=2, allow_unk=allowed))
    assert any('<unk>' in h[0].text for h in found) == allowed


def test_translation_without_a_score_is_an_error():
  translator = _translator()
  astray = dataclasses.replace(translator, params=jax.tree.map(lambda x: np.full_like(x, np.nan), translator.params))
  with pytest.raises(InputError, match='scores are not finite'):
    translate.translate(astray, LINES, Options(beam=2))


def test_draws_depend_only_on_the_line_and_the_seed():
  translator, options = _translator(), Options(sample=True, seed=3, max_extra=10)
  whole = translate.translate(translator, LINES, options)
  single = translate.translate(translator, LINES[2:3], options, first=3)
  assert single[0] == [dataclasses.replace(whole[2][0], log_p=single[0][0].log_p, score=single[0][0].score)]
  np.testing.assert_allclose(single[0][0].log_p, whole[2][0].log_p, rtol=1e-5)
  assert whole != translate.translate(translator, LINES, dataclasses.replace(options, seed=4))
  greedy = translate.translate(translator, LINES, dataclasses.replace(options, temperature=0.0))
  beam = translate.translate(translator, LINES, Options(beam=1, max_extra=10))
  assert [h[0].tokens for h in greedy] == [h[0].tokens for h in beam]
  sources = translator.sources(LINES)
  forced = translate.log_probabilities(translator, sources, [np.asarray(one.tokens) for (one,) in whole])
  for source, (one,), row in zip(sources, whole, forced, strict=True):
    assert one.log_p == pytest.approx(float(row.sum()), rel=1e-4)
    assert len(one.tokens) <= len(source) - 1 + 10


def test_streaming_samples_the_tokens_of_generate():
  translator = _translator()
  ((_, source),) = translate.batches(translator.sources(LINES), 64, None)
  options = dict(steps=9, key=jax.random.key(0), sampler=generate.Sampler(), eos_ids=(TOKENIZER.eos_id,), source=source)
  call = (tiny, translator.cfg, translator.params, np.full((4, 1), TOKENIZER.eos_id))
  found = generate.generate(*call, **options)
  streamed = np.stack(list(generate.stream(*call, **options)), 1)
  np.testing.assert_array_equal(streamed, found.tokens_BT[:, : streamed.shape[1]])
  with pytest.raises(InputError, match='more than the 30 positions'):
    generate.generate(*call, **(options | {'steps': 30}))


def test_output_length_is_limited_by_the_source():
  translator = _translator()
  never = _with_end(translator, -99.0)
  for line, (best, _) in zip(LINES, translate.translate(never, LINES, Options(beam=2, max_extra=23)), strict=True):
    assert len(best.tokens) == len(line.split()) + 23


def _with_end(translator, score):
  """The translator with another bias of the end mark."""
  bias = translator.params['bias'].copy()
  bias[TOKENIZER.eos_id] = score
  return dataclasses.replace(translator, params={**translator.params, 'bias': bias})


def test_length_limit_follows_the_2015_paper():
  translator = _translator()
  words = np.array([len(line.split()) for line in LINES])

  def lengths(score, sample=False):
    options = Options(beam=1, alpha=0.0, min_ratio=0.5, max_ratio=1.5, sample=sample)
    return np.array([len(one.tokens) for (one,) in translate.translate(_with_end(translator, score), LINES, options)])

  np.testing.assert_array_equal(lengths(-99.0), 3 * (words + 1) // 2)
  np.testing.assert_array_equal(lengths(-99.0, sample=True), 3 * (words + 1) // 2)
  np.testing.assert_array_equal(lengths(99.0), (words + 1) // 2 + 1)  # and the end mark


def test_alignments_name_the_source_in_the_order_of_the_text():
  translator = _translator()
  place = lambda cfg, params, batch: batch['source_BS'][:, None] + 0 * batch['tokens_BT'][..., None]
  model = complete(Model, tiny_translator)
  model.alignment = place
  translator = dataclasses.replace(translator, model=model)
  sources, targets = translator.sources(LINES), translator.targets(LINES[::-1])
  for source, target, a_TS in zip(sources, targets, translate.alignments(translator, sources, targets), strict=True):
    assert a_TS.shape == (len(target), len(source))
    np.testing.assert_array_equal(a_TS[0], source)  # the weights stand for the ids they belong to


@pytest.mark.parametrize('name', ['transformer', 'rnnsearch'])
def test_alignments_sum_to_one_and_padding_does_not_change_them(name):
  translator = _translator(name)
  sources, targets = translator.sources(LINES), translator.targets(LINES[::-1])
  together = translate.alignments(translator, sources, targets)
  for a_TS in together:
    np.testing.assert_allclose(a_TS.sum(-1), 1, atol=1e-5)
  (alone,) = translate.alignments(translator, sources[1:2], targets[1:2], tokens=1)
  np.testing.assert_allclose(alone, together[1], atol=1e-5)


def test_few_padded_lengths():
  assert [translate.padded_length(n, None) for n in (1, 8, 9, 64, 65, 100, 300)] == [8, 8, 16, 64, 80, 112, 320]
  assert translate.padded_length(9, 12) == 12
  assert len({translate.padded_length(n, None) for n in range(1, 1000)}) < 40


def test_source_is_required_only_by_encoder_decoders():
  translator = _translator()
  options = dict(steps=2, key=jax.random.key(0), sampler=generate.Sampler())
  with pytest.raises(InputError, match='needs a source'):
    generate.generate(tiny, translator.cfg, translator.params, np.zeros((1, 1), int), **options)
  with pytest.raises(InputError, match='reads no source'):
    cfg = registry.config('gpt2', 'tiny')
    generate.generate(registry.get('gpt2'), cfg, {}, np.zeros((1, 1), int), source={}, **options)
  run = untrained.load('experiments/gpt2/quickstart.py:tiny').run
  with pytest.raises(InputError, match='cannot translate'):
    translate.build_translator(run, {}, TOKENIZER)


@pytest.mark.parametrize(
  'name',
  [
    *('beam', 'max_extra', 'min_ratio', 'max_ratio', 'tokens', 'temperature'),
    *('min_tokens', 'no_repeat_ngram', 'repetition_penalty'),
  ],
)
def test_invalid_options_are_rejected(name):
  with pytest.raises(InputError, match=name):
    Options(**{name: -1})
  with pytest.raises(InputError, match='min_ratio: got 2'):
    Options(min_ratio=2, max_ratio=1.5)
