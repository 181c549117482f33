#!/bin/sh
# A real Slurm on this machine: munged, slurmctld and a slurmd per node, in a folder of their own, as the calling user.
#
#   slurm_fixture.sh start DIR NODES    prints the line to export: SLURM_CONF=…
#   slurm_fixture.sh stop DIR
#
# Exit code 77: Slurm or munge is not installed (Debian: slurmctld slurmd slurm-client munge), or a daemon does not start.
set -eu
action=$1
dir=$2

skip() {
  echo "slurm_fixture: $1" >&2
  exit 77
}

stop() {
  for file in "$dir"/*.pid; do
    [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
  done
}

if [ "$action" = stop ]; then
  stop
  exit 0
fi

nodes=$3
PATH=$PATH:/usr/sbin:/sbin
for program in munged slurmctld slurmd sbatch scontrol; do
  command -v "$program" >/dev/null || skip "$program is not installed"
done

mkdir -p "$dir/state" "$dir/spool"
chmod 700 "$dir"
dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 2>/dev/null
chmod 400 "$dir/munge.key"
munged --foreground --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.own" \
  --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" >"$dir/munged.out" 2>&1 &
echo $! >"$dir/munged.pid"

user=$(id -un)
host=$(hostname)
port=$((21000 + $$ % 5000))
cat >"$dir/slurm.conf" <<CONF
ClusterName=fixture
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CredType=cred/munge
SlurmctldPort=$port
SlurmctldPidFile=$dir/slurmctld.own
SlurmdPidFile=$dir/slurmd-%n.own
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
MinJobAge=300
NodeName=node[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"

slurmctld -D -i >"$dir/slurmctld.out" 2>&1 &
echo $! >"$dir/slurmctld.pid"
node=1
while [ "$node" -le "$nodes" ]; do
  mkdir -p "$dir/spool/node$node"
  slurmd -D -N "node$node" >"$dir/slurmd-$node.out" 2>&1 &
  echo $! >"$dir/slurmd-$node.pid"
  node=$((node + 1))
done

waited=0
while [ "$(sinfo --noheader --Node --format %T 2>/dev/null | grep -c '^idle')" -lt "$nodes" ]; do
  waited=$((waited + 1))
  if [ "$waited" -gt 120 ]; then
    tail -n 3 "$dir"/*.log "$dir"/*.out >&2 || true
    stop
    skip "the nodes do not come up"
  fi
  sleep 0.5
done
echo "SLURM_CONF=$dir/slurm.conf"
