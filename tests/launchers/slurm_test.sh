#!/bin/sh
# slurm_test.sh FORETRAIN: a run as a batch job on two nodes of a real Slurm; then one whose rank is killed.
set -eu
program=$1
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap '"$here/slurm_fixture.sh" stop "$dir/slurm"; rm -rf "$dir"' EXIT

fail() {
  echo "slurm_test: $1" >&2
  cat "$dir"/*.txt "$dir"/run*/*.log >&2 2>/dev/null || true
  exit 1
}
field() { # of a JSON document that is indented by two
  sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p" "$1"
}

"$here/slurm_fixture.sh" start "$dir/slurm" 2 </dev/null >"$dir/conf" || exit $?
SLURM_CONF=$(sed -n 's/^SLURM_CONF=//p' "$dir/conf")
export SLURM_CONF

"$program" run "$here/plan.json" --launcher slurm --steps 4 --out "$dir/run1" --db "$dir/runs.db" --json \
  >"$dir/first.txt" 2>"$dir/first-err.txt" || fail "the run ended with $?"
[ "$(field "$dir/first.txt" status)" = done ] || fail "the run is not done"
[ "$(field "$dir/first.txt" steps)" = 4 ] || fail "not all steps are there"
[ "$(ls "$dir"/run1/rank-*.log | wc -l)" -eq 4 ] || fail "a rank has no log"
grep -q 'ntasks-per-node=2' "$dir/run1/job.sbatch" || fail "ranks are not spread over the nodes"

"$program" run "$here/plan.json" --launcher slurm --steps 1000000 --timeout 10 --out "$dir/run2" --db "$dir/runs.db" --json \
  >"$dir/second.txt" 2>"$dir/second-err.txt" &
runs=$!
waited=0
until grep -q '"step":3' "$dir/run2/run.json" 2>/dev/null; do
  waited=$((waited + 1))
  [ "$waited" -lt 600 ] || fail "the second run does not start"
  sleep 0.1
done
scancel --signal=KILL --full "$(squeue --noheader --format %i | head -n 1)"
code=0
wait "$runs" || code=$?
[ "$code" -eq 1 ] || fail "a run whose ranks were killed ended with $code"
[ "$(field "$dir/second.txt" status)" = failed ] || fail "it is not kept as failed"
"$program" run "$here/plan.json" --launcher slurm --steps 400 --timeout 20 --out "$dir/run3" --db "$dir/runs.db" --json \
  --checkpoint "$dir/c" --checkpoint-every 20 --max-restarts 2 >"$dir/third.txt" 2>"$dir/third-err.txt" &
runs=$!
waited=0
until ls "$dir"/c/step-* >/dev/null 2>&1; do
  waited=$((waited + 1))
  [ "$waited" -lt 1200 ] || fail "the third run makes no checkpoint"
  sleep 0.1
done
scancel --signal=KILL "$(squeue --noheader --format %i | head -n 1).0" # the ranks, not the script
wait "$runs" || fail "the run that was restarted ended with $?"
[ "$(field "$dir/third.txt" status)" = done ] || fail "the run that was restarted is not done"
[ "$(field "$dir/third.txt" restarts)" = 1 ] || fail "it was not restarted once"
[ "$(field "$dir/third.txt" steps)" = 400 ] || fail "not all steps of the restarted run are there"
echo "a batch job on two nodes: done; a killed one: failed, as it must; one with restarts: done"
