# Functions shared by the scripts of this folder; sourced, not run.

# What the planner needs: compiler, build tools, libraries. The names are the same on Debian 12 and 13.
planner_packages="g++ cmake ninja-build ca-certificates
  libsimgrid-dev libboost-dev libsqlitecpp-dev libsqlite3-dev libcli11-dev nlohmann-json3-dev libfmt-dev libexpected-dev
  libxxhash-dev"
# The tests, the benchmarks and the scripts in Python.
test_packages="libgtest-dev libgmock-dev libbenchmark-dev python3"
# foretrain-run: LibTorch, Gloo, and a BLAS that is ten times faster than the reference one.
executor_packages="libtorch-dev libgloo-dev libopenblas-dev"

# foretrain-gui: Qt 6, QCustomPlot, and the font that its tests measure with.
gui_packages="qt6-base-dev qt6-svg-dev libqcustomplot-dev fonts-dejavu-core"

say() { printf '\n== %s\n' "$*"; }
fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt-get, as root or through sudo, without a question.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "packages are missing and neither root nor sudo is here; run as root: $*"
  fi
}

# install_missing PACKAGE…: installs those that are not there. Nothing is downloaded when nothing is missing.
install_missing() {
  command -v dpkg-query >/dev/null || fail "this is no Debian; install by hand: $*"
  local missing="" package
  for package in "$@"; do is_installed "$package" || missing="$missing $package"; done
  if [ -z "$missing" ]; then
    echo "every package is there"
    return
  fi
  echo "missing:$missing"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086 # one word per package
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing \
      </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get failed (whole output: $log)"
  fi
  rm -f "$log"
  echo "installed:$missing"
}
