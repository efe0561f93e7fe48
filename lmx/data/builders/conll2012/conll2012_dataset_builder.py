"""CoNLL-2012, semantic roles in the English part of OntoNotes 5 (Pradhan et al. 2012, 2013), in BIO."""

from __future__ import annotations

from collections.abc import Iterator

from lmx.data.builders import base, columns, files, propositions


class Builder(columns.PropositionBuilder):
  """One example is one sentence with one of its predicates, from one file a split or a tree of *gold_conll files."""

  BUILDER_CONFIGS = base.CHECKED

  def documents(self, split: str, paths: dict[str, str]) -> Iterator[base.Document]:
    every = (row for path in files.find_tree(paths[split], files.GOLD) for row in propositions.read_2012(path))
    return self.rows(split, every)
