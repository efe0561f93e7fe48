"""Transformer-Tiny on Multi30k (Wu et al. 2021, "Good for Misconceived Reasons", ACL), text only.

  lmx train --config=experiments/transformer/multi30k.py --workdir=runs/multi30k --config.data.manual_dir=DIR
  lmx evaluate --workdir=runs/multi30k --which=average --split=test_2017

29,000 captions of pictures; `en_de` translates English to German, `en_fr` to French, and
--config.data.source=de --config.data.target=en another direction. Without manual_dir the files are downloaded. `test`
is Flickr 2016; splits test_2017 and test_coco are the others.

  variant   to expect, tokenised BLEU, test 2016 / 2017 / COCO       hardware and time
  en_de     41.1 / 32.8 / 29.4 (theirs 41.0 / 33.4 / 29.9)           2.7 hours on two cores
  en_fr     no figure checked                                        the same

Their recipe (github.com/LividWo/Revisit-MMT, README-baseline.md): 4 + 4 layers of width 128, dropout 0.3, one BPE of
10,000 merges for both languages, batches of 4,096 tokens on each of two GPUs, rate 0.005 after 2,000 updates of warm-up
and then the inverse square root, label smoothing, at most 8,000 updates, early stopping after ten epochs without a
better smoothed validation loss, as in fairseq (without smoothing, objective.validation=nll, runs end sooner and four
seeds have 41.1 / 33.4 / 29.2), mean of the last ten epochs' parameters, beam 5 with scores divided by the length,
search until the fifth finished hypothesis. Differences: our BPE is over the bytes of the lower-cased text (option
`cased` keeps case) after a prepended space; theirs is within Moses tokens, with end-of-word symbols.
--config.data.tokenizer=word_bpe --config.data.prefix_space=False has nearly the same subwords (docs/notes/multi30k.md).
An update reads pairs of every length, in eight groups; theirs has two lengths, one per GPU
(--config.data.batching.groups=1: one length, as on a single device without groups). The table is of seed 3. Their
metrics use normalised, lower-cased Moses tokens: `bleu_tokenised_lower` in results.json.
"""

from __future__ import annotations

from experiments import config, translation

VARIANTS = ('en_de', 'en_fr', 'tiny')


@config.arguments(VARIANTS, cased=False)
def get_config(variant, options):
  base = {
    'name': f'transformer_multi30k_{variant}',
    'model': {'name': 'transformer', 'variant': 'tiny_multi30k'},
    'data': {'target': 'fr' if variant == 'en_fr' else 'de', 'lower_case': not options.cased},
  }
  tiny = translation.tiny() if variant == 'tiny' else {}
  return config.merge(translation.transformer_tiny(), base, tiny)


def sweep():
  yield from config.grid(optim__lr=[2e-3, 5e-3], model__dropout=[0.2, 0.3, 0.4])
