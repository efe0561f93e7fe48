#!/bin/bash
# Made by python -m launch.slurm; sbatch takes it.
#SBATCH --job-name=lmx
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --output=runs/slurm/%x-%A_%a.out
#SBATCH --array=0-1%1
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
#SBATCH --export=HOME,USER,PATH,LANG,LD_LIBRARY_PATH,LMX_CACHE,LMX_DATA,XDG_CACHE_HOME,LMX_COMPILATION_CACHE,JAX_COMPILATION_CACHE_DIR
#SBATCH --requeue

set -u
export SLURM_EXPORT_ENV=ALL  # to srun, what this shell has
cd /project || exit 2
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

case "$SLURM_ARRAY_TASK_ID" in
0)
command=(apptainer exec --nv --bind /project:/project --pwd /project '/images/it'"'"'s lmx.sif' python3 -m lmx.cli.main train --config=a.py --config.seed=1)
check=(apptainer exec --nv --bind /project:/project --pwd /project '/images/it'"'"'s lmx.sif' python3 -m lmx.cli.main preflight --prepare --processes=1 --devices=8 --timeout=60 --config=a.py --config.seed=1)
;;
1)
command=(apptainer exec --nv --bind /project:/project --pwd /project '/images/it'"'"'s lmx.sif' python3 -m lmx.cli.main train --config=a.py --config.seed=2)
check=(apptainer exec --nv --bind /project:/project --pwd /project '/images/it'"'"'s lmx.sif' python3 -m lmx.cli.main preflight --prepare --processes=1 --devices=8 --timeout=60 --config=a.py --config.seed=2)
;;
esac
restarts=3
logs=runs/slurm
task='trap : TERM  # lmx has it too, saves and ends
export LMX_PROCESS_ID="$SLURM_PROCID"
"$@"
code=$?
if [ "$code" -ne 0 ] && [ "$code" -ne 75 ] && { [ "$code" -le 128 ] || [ "$code" -eq 130 ]; }; then
  echo "$code" > "$LMX_ENDED"
fi
exit "$code"'

told=; child=; again=
export LMX_ENDED="$logs/.ended-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
tell() {  # by scancel, which signals the processes: srun takes the signal for an order to end them at once
  told=1
  if [ -n "$child" ]; then scancel --signal=TERM "$SLURM_JOB_ID"; fi
}
trap tell TERM
trap 'restarts=0; tell' USR1

processes() {  # runs the command in every process; the code is one that no restart mends, or what srun gives
  # Since Slurm 22.05 srun does not take over the cores of a process from the job.
  srun ${SLURM_CPUS_PER_TASK:+"--cpus-per-task=$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=1 bash -c "$task" lmx "$@" &
  child=$!
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do  # the wait was ended by the signal
    wait "$child"
    code=$?
  done
  child=
  if [ -s "$LMX_ENDED" ]; then read -r code < "$LMX_ENDED"; rm -f "$LMX_ENDED"; fi
}

code=0
if [ ${#check[@]} -gt 0 ]; then processes "${check[@]}"; fi
if [ "$code" -eq 0 ] && [ -n "$told" ]; then code=75; fi  # before the training began
if [ "$code" -eq 0 ]; then processes "${command[@]}"; fi
if [ "$code" -eq 75 ] || { [ "$code" -gt 128 ] && [ "$code" -ne 130 ]; }; then
  state="$(scontrol show job --oneliner "$SLURM_JOB_ID" | grep -o 'JobState=[A-Z]*')"
  if [ "$state" = JobState=RUNNING ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$restarts" ]; then
    echo "launch.slurm: ended with $code; back into the queue (restart $((${SLURM_RESTART_COUNT:-0} + 1)) of $restarts)"
    scontrol requeue "$SLURM_JOB_ID" && again=1
    sleep 60  # until Slurm ends this run of the job
  fi
fi
exit "$code"
