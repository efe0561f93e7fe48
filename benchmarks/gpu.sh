#!/bin/bash
# Check and time lmx on one NVIDIA GPU, in at most 9 minutes and without a network: parity of every model with the CPU,
# the kernels for GPUs, exact resumption, step times. Prints one table; logs and measurements are in DIR.
#
#   benchmarks/gpu.sh DIR [PART...]       parts: parity kernels resume step; all by default
set -u
cd "$(dirname "$0")/.."
out=$1; shift
parts=" ${*:-parity kernels resume step} "
mkdir -p "$out"
export LMX_CACHE=${LMX_CACHE:-$(mktemp -d)} XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1
python=${PYTHON:-python3}

# JOBS SECONDS COMMAND...: the command for each line of stdin, JOBS at once, each for at most SECONDS.
each() {
  local jobs=$1 seconds=$2; shift 2
  xargs -P "$jobs" -I{} timeout -k 5 "$seconds" "$@"
}

if [[ $parts == *' parity '* ]]; then
  JAX_PLATFORMS=cuda,cpu each 12 150 "$python" -m benchmarks.gpu parity "$out/parity_{}.jsonl" {} \
    < <("$python" -c 'from lmx.models import registry; print("\n".join(registry.names()))') > "$out/parity.log" 2>&1 &
fi
if [[ $parts == *' kernels '* ]]; then
  JAX_PLATFORMS=cuda,cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 timeout -k 5 150 \
    "$python" -m pytest -q -n 4 -p no:cacheprovider tests/kernels tests/layers > "$out/kernels.log" 2>&1 &
fi
wait
if [[ $parts == *' resume '* ]]; then  # XLA's kernels for GPUs are deterministic by request only
  printf '%s\n' gpt2 awd_lstm bert transformer_xl | JAX_PLATFORMS=cuda XLA_FLAGS=--xla_gpu_deterministic_ops=true \
    each 4 120 "$python" -m benchmarks.gpu resume "$out/resume_{}.jsonl" {} > "$out/resume.log" 2>&1
fi
# NAME ARGUMENTS...: a timed step; alone, as nothing else may use the GPU.
step() {
  local name=$1; shift
  echo "$name" >> "$out/step.log"
  JAX_PLATFORMS=cuda timeout -k 5 100 "$python" -m lmx.cli.main bench "$@" --steps=20 --warmup=3 --json="$out/step_$name.json" \
    >> "$out/step.log" 2>&1
}
if [[ $parts == *' step '* ]]; then
  half='--set=dtype=bfloat16'
  step gpt2_124m gpt2:124m --batch=16 --length=1024 $half
  step awd_lstm awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd
  step awd_lstm_bfloat16 awd_lstm:ptb --batch=20 --length=70 --optimizer=sgd $half
  step word2vec word2vec --batch=1024
  step bert_large_128 bert:large --batch=64 --length=128 $half
  step bert_large_512 bert:large --batch=16 --length=512 $half
  step transformer_xl_base transformer_xl:wt103_base --batch=32 --length=150 --optimizer=adam $half
fi
"$python" -m benchmarks.gpu table "$out" | tee "$out/table.md"
