"""Scores of sentences: log-likelihoods and pseudo-log-likelihoods under any language model.

`sentences.py` is the entry: texts in, `Score`s out. The equation of each method stands in its own file: causal.py
(left to right), masked.py (BERT), permutation.py (XLNet), both_ways.py (ELMo).
"""
