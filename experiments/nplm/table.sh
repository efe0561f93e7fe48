#!/bin/sh
# Table 1 of Bengio et al. (2003), every row, beside the paper's figures.
#
#   sh experiments/nplm/table.sh DIR OUT [--config.section.key=value ...]
#
# DIR holds the Brown corpus as experiments/nplm/brown.py says; OUT takes a run for each network, the figures of each
# row as JSON, and table.md. The other arguments change every run alike, and so does the variable OPTIONS, such as
# OPTIONS=,rate=4e-3,epochs=6 (see brown.py). MODELS names the n-gram models; most of their time is finding word classes.
# Started again, it goes on where it stopped.
set -eu
data=$1
out=$2
shift 2
PYTHON=${PYTHON:-python}
lmx() { "$PYTHON" -m lmx.cli.main "$@"; }
config=experiments/nplm/brown.py

mkdir -p "$out"
lmx ngrams --config=$config --config.data.manual_dir="$data" --split=train,valid,test --output="$out/ngrams.json" \
  --models="${MODELS:-trigram,kn3,kn4,kn5,class3_150,class3_200,class3_500,class4_500,class5_500,class3_1000,class3_2000}" "$@"
for number in 9 5 1 7 3; do
  run=$out/mlp$number
  mixed=$out/mlp$((number + 1))
  mkdir -p "$mixed"
  lmx train --config="$config:mlp$number${OPTIONS:-}" --workdir="$run" --config.data.manual_dir="$data" "$@"
  for split in train valid test; do
    lmx evaluate --workdir="$run" --split=$split --output="$run/$split.json" --no-baselines
  done
  for split in valid test; do
    lmx evaluate --workdir="$run" --split=$split --output="$mixed/$split.json" --no-baselines --mixture=trigram
  done
done
"$PYTHON" -m launch.tables --experiment=$config --runs="$out" | tee "$out/table.md"
