#!/bin/bash
# Check and time lmx on one NVIDIA GPU, in at most 9 minutes and without a network: parity of every model with the CPU,
# cuDNN's kernels, exact resumption, step times. Prints one table; logs and measurements are in DIR.
#
#   benchmarks/gpu.sh DIR [PART...]       parts: parity, kernels, resume, step; all by default
#
# EXPECTED is a folder of what parity compares with. To save time on the machine with the GPU, make it before:
# `python -m benchmarks.gpu expect EXPECTED MODEL...`. MODELS are those whose parity is checked (default: all).
set -u
cd "$(dirname "$0")/.."
out=$1; shift
parts=" ${*:-parity kernels resume step} "
mkdir -p "$out"
export LMX_CACHE=${LMX_CACHE:-$(mktemp -d)} XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
quick='--xla_gpu_autotune_level=0'  # small programs are compiled to be checked, not timed

# JOBS SECONDS COMMAND...: the command for each line of stdin, JOBS at once, each for at most SECONDS.
each() {
  local jobs=$1 seconds=$2; shift 2
  xargs -P "$jobs" -I{} timeout -k 5 "$seconds" "$@"
}

if [[ $parts == *' kernels '* ]]; then
  JAX_PLATFORMS=cuda,cpu XLA_FLAGS=$quick timeout -k 5 150 \
    "$python" -m pytest -q -rfE -p no:cacheprovider -k 'cudnn_equals or chunked or (equal_the_equation and scan)' tests/kernels > "$out/kernels.log" 2>&1 &
fi
if [[ $parts == *' parity '* ]]; then
  mapfile -t models < <("$python" -c 'from lmx.models import registry; print("\n".join(registry.names()))')
  models=(${MODELS:-${models[@]}})
  if [[ ! -d ${EXPECTED:-} ]]; then
    EXPECTED=$out/expected; mkdir -p "$EXPECTED"
    printf '%s\n' "${models[@]}" | JAX_PLATFORMS=cpu each 8 150 "$python" -m benchmarks.gpu expect "$EXPECTED" {} \
      > "$out/expect.log" 2>&1
  fi
  printf '%s\n' "${models[@]}" | JAX_PLATFORMS=cuda XLA_FLAGS=$quick each 7 150 \
    "$python" -m benchmarks.gpu parity "$EXPECTED" "$out/parity.jsonl" {} > "$out/parity.log" 2>&1 &
fi

# The steps to time: a name, and arguments of `lmx bench`.
steps() {
  local half=--set=dtype=bfloat16
  cat <<END
gpt2_124m gpt2:124m --batch=16 --length=1024 $half
awd_lstm awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd
awd_lstm_bfloat16 awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd $half
bert_large_128 bert:large --batch=64 --length=128 $half --set=scan=true
bert_large_512 bert:large --batch=16 --length=512 $half --set=scan=true
transformer_xl_base transformer_xl:wt103_base --batch=32 --length=150 --optimizer=adam $half --set=scan=true
word2vec word2vec --batch=1024
END
}
# COUNT NAME ARGUMENTS...: time COUNT steps.
bench() {
  local count=$1 name=$2; shift 2
  JAX_PLATFORMS=cuda timeout -k 5 120 "$python" -m lmx.cli.main bench "$@" --steps="$count" --warmup=3 \
    --json="$out/step_$name.json" >> "$out/step_$name.log" 2>&1
}
if [[ $parts == *' step '* ]]; then  # compiled at the same time, then timed alone
  export JAX_COMPILATION_CACHE_DIR=$LMX_CACHE/programs JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=1
  while read -r line; do bench 1 $line & done < <(steps)
fi
wait
if [[ $parts == *' step '* ]]; then
  while read -r line; do bench 20 $line < /dev/null; done < <(steps)
fi
if [[ $parts == *' resume '* ]]; then  # XLA's kernels for GPUs are deterministic by request only
  printf '%s\n' gpt2 awd_lstm bert transformer_xl | JAX_PLATFORMS=cuda each 4 150 env \
    XLA_FLAGS="$quick --xla_gpu_deterministic_ops=true" "$python" -m benchmarks.gpu resume "$out/resume.jsonl" {} \
    > "$out/resume.log" 2>&1
fi
"$python" -m benchmarks.gpu table "$out" | tee "$out/table.md"
