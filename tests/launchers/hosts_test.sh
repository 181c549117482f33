#!/bin/sh
# hosts_test.sh FORETRAIN_RUN: two ranks in network namespaces of their own, as on two hosts; then the cable is pulled.
# Exit code 77: not allowed to make namespaces, or no ip command.
set -eu
program=$1
here=$(cd "$(dirname "$0")" && pwd)
one=foretrain-$$-a
two=foretrain-$$-b
dir=$(mktemp -d)

clean() {
  for name in "$one" "$two"; do
    ip netns pids "$name" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$name" 2>/dev/null || true
  done
  rm -rf "$dir"
}
trap clean EXIT
fail() {
  echo "hosts_test: $1" >&2
  cat "$dir"/*.txt >&2 || true
  exit 1
}

command -v ip >/dev/null || exit 77
ip netns add "$one" 2>/dev/null || exit 77
ip netns add "$two" || exit 77
ip link add veth-a netns "$one" type veth peer name veth-b netns "$two" || exit 77
ip -n "$one" addr add 10.231.7.1/24 dev veth-a
ip -n "$two" addr add 10.231.7.2/24 dev veth-b
for name in "$one" "$two"; do
  ip -n "$name" link set lo up
done
ip -n "$one" link set veth-a up
ip -n "$two" link set veth-b up

sed 's/"tp": 2, "pp": 2/"pp": 2/' "$here/plan.json" >"$dir/plan.json"
start() { # NAMESPACE RANK STEPS
  RANK=$2 WORLD_SIZE=2 MASTER_ADDR=10.231.7.1 MASTER_PORT=29871 FORETRAIN_TOKEN=shared OMP_NUM_THREADS=1 \
    ip netns exec "$1" "$program" "$dir/plan.json" --launcher env --steps "$3" --timeout 10 --ops none \
    --out "$dir/run.json" >"$dir/rank-$2.txt" 2>&1 &
}

start "$one" 0 3
first=$!
start "$two" 1 3
second=$!
wait "$first" || fail "rank 0 ended with $?"
wait "$second" || fail "rank 1 ended with $?"

rm "$dir/run.json"
start "$one" 0 1000000
first=$!
start "$two" 1 1000000
second=$!
waited=0
until grep -q '"step":3' "$dir/run.json" 2>/dev/null; do
  waited=$((waited + 1))
  [ "$waited" -lt 600 ] || fail "the second run does not start"
  sleep 0.1
done
ip -n "$two" link set veth-b down
pulled=$(date +%s)
code=0
wait "$first" || code=$?
[ "$code" -eq 1 ] || fail "rank 0 ended with $code"
code=0
wait "$second" || code=$?
[ "$code" -eq 1 ] || fail "rank 1 ended with $code"
took=$(($(date +%s) - pulled))
[ "$took" -le 30 ] || fail "it took $took s, with a timeout of 10"
grep -q '"rank":0,"error":"rank 0' "$dir/run.json" || fail "rank 0 did not say where it was"
grep -q '"rank":1,"error":"rank 1' "$dir/run.json" || fail "rank 1 did not say where it was"
echo "two hosts: done; without a cable both ended within $took s"
