#!/bin/sh
# Installs what building ogive needs and this machine lacks. Changes nothing when everything is there.
set -eu

say() { printf 'ogive setup: %s\n' "$*"; }
fail() {
  printf 'ogive setup: %s\n' "$*" >&2
  exit 1
}

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() {
  for prefix in /usr /usr/local /opt/homebrew /opt/local; do
    for folder in "$prefix/include" "$prefix/include/eigen3"; do
      [ -e "$folder/$1" ] && return 0
    done
  done
  return 1
}
# Workflow presets came with CMake 3.25.
has_cmake() {
  has_command cmake || return 1
  version=$(cmake --version | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
  major=${version% *}
  minor=${version#* }
  [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 25 ]; }
}

missing_packages() {
  has_command c++ || has_command g++ || has_command clang++ || echo g++
  has_cmake || echo cmake
  has_command ninja || echo ninja-build
  has_command git || echo git
  has_command gnuplot || echo gnuplot-nox
  has_header xsimd/xsimd.hpp || echo libxsimd-dev
  has_header Eigen/Core || echo libeigen3-dev
  has_header nlohmann/json.hpp || echo nlohmann-json3-dev
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || echo catch2
  has_header benchmark/benchmark.h || echo libbenchmark-dev
}

missing=$(missing_packages | tr '\n' ' ')
if [ -z "$missing" ]; then
  say "everything ogive needs is already here."
  exit 0
fi

if ! has_command apt-get; then
  fail "this system has no apt-get. Please install these (Debian's names), then run this again: ${missing}
             (CMake 3.25 or newer, a C++20 compiler, Ninja, xsimd, Eigen 3.4 or newer, Catch2, Google Benchmark,
             nlohmann-json, gnuplot)"
fi

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif has_command sudo; then
  as_root=sudo
else
  fail "not root, and there is no sudo. Please run as root: apt-get update && apt-get install ${missing}"
fi

say "installing with apt: ${missing}"
say "(compiler and build tools, the SIMD and matrix headers ogive stands on, test and benchmark frameworks, gnuplot)"
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "apt-get $1 failed; its last lines stand above."
  }
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt update
# shellcheck disable=SC2086
apt install --no-install-recommends $missing

missing=$(missing_packages | tr '\n' ' ')
[ -z "$missing" ] || fail "still missing after the installation: ${missing}"
say "done."
