"""Regressions of a score of rows: their baselines."""

from __future__ import annotations

OPTIONS = {'baselines': 'bag_of_words'}
