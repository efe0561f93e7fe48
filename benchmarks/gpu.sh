#!/bin/bash
# Check and time lmx on one NVIDIA GPU, in at most LIMIT seconds (720) and without a network. Prints one table, which is
# in DIR/table.md after every part; logs and measurements are in DIR.
#
#   benchmarks/gpu.sh DIR [PART...]
#
# Parts, in this order, all by default:
#   parity    every model's tiny size against the CPU, while the steps are compiled
#   step      times of training steps
#   switches  the same step without one of the implementations for GPUs
#   kernels   tests of kernels against their equations
#   resume    killed and resumed runs against uninterrupted ones
#
# EXPECTED is a folder of what parity compares with. To save time on the machine with the GPU, make it before:
# `python -m benchmarks.gpu expect EXPECTED MODEL...`. MODELS are those whose parity is checked (default: all).
# PLATFORM=cpu rehearses all parts on a CPU, with tiny models. JOBS (8) is the number of processes at once.
set -u
all='parity step switches kernels resume'
if (($# == 0)) || [[ $1 == -* ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; [[ ${1:-} == --help || ${1:-} == -h ]] && exit; exit 2
fi
mkdir -p "$1" && out=$(realpath "$1") || exit 2; shift
for part in "$@"; do
  [[ " $all " == *" $part "* ]] || { echo "benchmarks/gpu.sh: got part \"$part\"; expected one of: $all" >&2; exit 2; }
done
parts=" ${*:-$all} "
cd "$(dirname "$0")/.."
limit=${LIMIT:-720}; quiet_from=$((limit / 2))  # the second half belongs to the timed steps
platform=${PLATFORM:-cuda}
jobs=${JOBS:-8}  # processes at once
export LMX_CACHE=${LMX_CACHE:-$(mktemp -d)} XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1
export JAX_COMPILATION_CACHE_DIR=$LMX_CACHE/programs JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=1
python=${PYTHON:-python3}
quick='--xla_gpu_autotune_level=0'  # small programs are compiled to be checked, not timed
on_device=(env JAX_PLATFORMS="$platform")

wanted() { [[ $parts == *" $1 "* ]]; }
# UNTIL COMMAND...: run a command and its children, until UNTIL seconds after the start of this script at the latest.
until_() {
  local seconds=$(($1 - SECONDS)); shift
  ((seconds > 0)) && timeout -k 5 "$seconds" "$@"
}
# UNTIL JOBS COMMAND...: the command for each line of stdin, JOBS at once.
each() {
  local end=$1 jobs=$2; shift 2
  until_ "$end" xargs -P "$jobs" -I{} "$@"
}
table() { "$python" -m benchmarks.gpu table "$out" > "$out/table.md"; }

# The steps to time: part, name, and arguments of `lmx bench`.
steps() {
  local half=--set=dtype=bfloat16 loop=--set=scan=true
  local gpt2="gpt2:124m --batch=16 --length=1024 $half" bert="bert:large $half $loop"
  if wanted step; then
    cat <<END
step gpt2_124m $gpt2
step bert_large_512 $bert --batch=16 --length=512
step transformer_xl_base transformer_xl:wt103_base --batch=32 --length=150 --optimizer=adam $half $loop
step awd_lstm awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd
step bert_large_128 $bert --batch=64 --length=128
step awd_lstm_bfloat16 awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd $half
step word2vec word2vec --batch=1024
END
  fi
  if wanted switches; then
    cat <<END
switch gpt2_124m,all_off $gpt2 --set=parallel.logits_dtype=float32 --set=parallel.equations=('activate','layer_norm','log_normalizer','split_affine')
switch gpt2_124m,logits_off $gpt2 --set=parallel.logits_dtype=float32
switch gpt2_124m,activate_off $gpt2 --set=parallel.equations=activate
switch gpt2_124m,layer_norm_off $gpt2 --set=parallel.equations=layer_norm
switch gpt2_124m,log_normalizer_off $gpt2 --set=parallel.equations=log_normalizer
switch gpt2_124m,split_affine_off $gpt2 --set=parallel.equations=split_affine
switch gpt2_124m,all_on $gpt2
END
  fi
}
# The steps of `steps`, with tiny models in a rehearsal.
planned() {
  if [[ $platform == cpu ]]; then
    steps | sed -E 's/^([^ ]+ [^ ]+ [^ :]+)(:[^ ]+)?/\1:tiny/; s/=[0-9]+( |$)/=8\1/g'
  else
    steps
  fi
}
# UNTIL COUNT PART NAME ARGUMENTS...: time COUNT steps; no result of one step, which is only compiled.
bench() {
  local end=$1 count=$2 part=$3 name=$4 json=(); shift 4
  ((count > 1)) && json=(--json="$out/${part}_$name.json")
  until_ "$end" "${on_device[@]}" "$python" -m lmx.cli.main bench "$@" --steps="$count" --warmup=3 "${json[@]}" \
    >> "$out/${part}_$name.log" 2>&1 < /dev/null
}

planned | cut -d' ' -f1,2 > "$out/planned"
if wanted parity; then
  mapfile -t models < <("$python" -c 'from lmx.models import registry; print("\n".join(registry.names()))')
  models=(${MODELS:-${models[@]}})
  printf 'parity %s\n' "${models[@]}" >> "$out/planned"
  if [[ ! -d ${EXPECTED:-} ]]; then
    EXPECTED=$out/expected; mkdir -p "$EXPECTED"
    printf '%s\n' "${models[@]}" | JAX_PLATFORMS=cpu each "$quiet_from" "$jobs" "$python" -m benchmarks.gpu expect \
      "$EXPECTED" {} > "$out/expect.log" 2>&1
  fi
  printf '%s\n' "${models[@]}" | XLA_FLAGS=$quick each "$quiet_from" "$jobs" "${on_device[@]}" \
    "$python" -m benchmarks.gpu parity "$EXPECTED" "$out/parity.jsonl" {} > "$out/parity.log" 2>&1 &
fi
running=0
while read -r line; do
  ((running++ < jobs)) || wait -n
  bench "$quiet_from" 1 $line &
done < <(planned)
wait
table
while read -r line; do bench "$limit" 20 $line; done < <(planned)
table
if wanted kernels; then
  JAX_PLATFORMS=$platform,cpu XLA_FLAGS=$quick until_ "$limit" "$python" -m pytest -q -rfE -p no:cacheprovider \
    -k 'cudnn_equals or compiled_equals or for_gpus or chunked or (equal_the_equation and scan)' tests/kernels > "$out/kernels.log" 2>&1 &
fi
if wanted resume; then  # XLA's kernels for GPUs are deterministic by request only
  resumed=(gpt2 awd_lstm bert transformer_xl)
  printf 'resume %s\n' "${resumed[@]}" >> "$out/planned"
  printf '%s\n' "${resumed[@]}" | XLA_FLAGS="$quick --xla_gpu_deterministic_ops=true" each "$limit" 4 \
    "${on_device[@]}" "$python" -m benchmarks.gpu resume "$out/resume.jsonl" {} > "$out/resume.log" 2>&1
fi
wait
table
cat "$out/table.md"
