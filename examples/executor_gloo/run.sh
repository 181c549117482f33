#!/bin/sh
# Measures this machine, then for every plan of plans/: predicts, runs it for real, and compares.
# FORETRAIN names the program; without it the one on PATH runs. STEPS: of each run. PROBE_STEPS: of each probe of the
# machine. OUT: folder for what is written.
set -eu
cd "$(dirname "$0")"
program=${FORETRAIN:-foretrain}
steps=${STEPS:-6}
probe_steps=${PROBE_STEPS:-8}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"

for cluster in cpu-host cpu-host-shared; do
  "$program" calibrate --cluster "$cluster" --quick --steps "$probe_steps" --out "$out/$cluster.json" --work "$out/probes-$cluster"
done

for plan in plans/*.json; do
  name=$(basename "$plan" .json)
  case $name in
  2-*) calibration=$out/cpu-host.json ;;
  *) calibration=$out/cpu-host-shared.json ;;
  esac
  echo "== $name"
  if "$program" run "$plan" --steps "$steps" --calibration "$calibration" --db "$out/runs.db" >"$out/$name.txt" 2>&1; then
    id=$(sed -n 's/^foretrain compare \([0-9]*\) .*/\1/p' "$out/$name.txt")
    "$program" compare "$id" --db "$out/runs.db"
  else
    code=$?
    tail -n 3 "$out/$name.txt"
    [ "$code" -eq 2 ] || exit "$code" # 2: the executor says that it does not run this plan
  fi
done
echo "everything is in $out"
