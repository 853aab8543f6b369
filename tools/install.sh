#!/usr/bin/env bash
# Installs what Fairlead is built and tested with. Idempotent; does nothing, quickly, when all is there.
#   tools/install.sh build    Debian packages for `make build` and `make demo`
#   tools/install.sh test     the above, tools for the checks, .venv from tests/requirements.lock, test assets
#   tools/install.sh relock   renews tests/requirements.lock from tests/requirements.in
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(
  ccache clang-19 cmake curl git libboost1.81-dev libcli11-dev libcurl4-openssl-dev libfmt-dev
  libmimalloc-dev libnghttp2-dev libonig-dev libprotobuf-dev libsimdjson-dev libspdlog-dev libssl-dev
  libxxhash-dev libyaml-dev libzmq3-dev lld-19 make mold ninja-build pkg-config protobuf-compiler
  # The build configures the unit tests and benchmarks along with the program.
  libbenchmark-dev libgmock-dev libgtest-dev
)
test_packages=(
  clang-format-19 clang-tidy-19 iproute2 libclang-rt-19-dev libclang1-19 llvm-19 openssl
  python3 python3-venv
)
# Headers for the syntax check of the NEON paths.
if [ "$(dpkg --print-architecture 2>/dev/null || true)" = amd64 ]; then
  test_packages+=(libc6-dev-arm64-cross libstdc++-12-dev-arm64-cross linux-libc-dev-arm64-cross)
fi

# The oldest revision without known holes in what faces the network: HTTP/2 CONTINUATION and reset floods.
declare -A minimum_versions=([libnghttp2-14]=1.52.0-1+deb12u3)

say() { echo "install: $*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "packages must be installed but this is neither root nor a machine with sudo; as root run: $*"
  fi
}

apt() {
  # A lock held by an unattended upgrade and a lost connection are waited for, not failures.
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >&2
}

# Names of the given packages that are not installed.
missing_packages() {
  comm -13 \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' | sort) \
    <(printf '%s\n' "$@" | sort)
}

# Names of installed packages that are older than the revision in minimum_versions.
outdated_packages() {
  local name version
  for name in "${!minimum_versions[@]}"; do
    version=$(dpkg-query -W -f '${Version}' "$name" 2>/dev/null || true)
    if [ -n "$version" ] && dpkg --compare-versions "$version" lt "${minimum_versions[$name]}"; then
      echo "$name"
    fi
  done
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this script knows Debian 12 only; install by hand: $*"
  local missing outdated
  mapfile -t missing < <(missing_packages "$@")
  mapfile -t outdated < <(outdated_packages)
  if [ $((${#missing[@]} + ${#outdated[@]})) -gt 0 ]; then
    say "installing: ${missing[*]} ${outdated[*]}"
    as_root dpkg --configure -a >&2  # Finishes what an interrupted run left half done.
    apt update
    apt install -y --no-install-recommends "${missing[@]}" "${outdated[@]}"
    mapfile -t outdated < <(outdated_packages)
    [ ${#outdated[@]} = 0 ] || say "warning: no newer revision is offered for: ${outdated[*]}"
  fi
}

# A Python of at least 3.11: Debian's own first.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "no python3 >= 3.11 with venv found"
}

make_venv() {
  local target=$1
  if ! "$target/bin/python" -c 'import pip' 2>/dev/null; then
    rm -rf "$target"
    "$(find_python)" -m venv "$target"
  fi
}

install_python() {
  local want have
  want=$(sha256sum tests/requirements.lock | cut -d' ' -f1)
  have=$(cat .venv/requirements.sha256 2>/dev/null || true)
  if [ "$want" != "$have" ] || ! .venv/bin/python -c '' 2>/dev/null; then
    say "making .venv from tests/requirements.lock"
    make_venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -r tests/requirements.lock >&2
    .venv/bin/python -m pip check >&2
    echo "$want" >.venv/requirements.sha256
  fi
}

install_assets() {
  if [ -x tools/fetch_test_assets.sh ]; then
    # A machine may have its own Node.js, which Debian's npm would conflict with.
    command -v npm >/dev/null || install_packages npm
    tools/fetch_test_assets.sh
  fi
}

relock() {
  install_packages python3 python3-venv
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' EXIT
  "$(find_python)" -m venv "$fresh/venv"
  "$fresh/venv/bin/python" -m pip install -q --disable-pip-version-check -r tests/requirements.in
  {
    echo "# Made by \`tools/install.sh relock\` from requirements.in; do not edit."
    "$fresh/venv/bin/python" -m pip freeze --all --exclude pip --exclude wheel
  } >"$fresh/lock"
  mv "$fresh/lock" tests/requirements.lock
}

case "${1:-}" in
  build) install_packages "${build_packages[@]}" ;;
  test)
    install_packages "${build_packages[@]}" "${test_packages[@]}"
    install_python
    install_assets
    ;;
  relock) relock ;;
  *) die "usage: tools/install.sh build|test|relock" ;;
esac
