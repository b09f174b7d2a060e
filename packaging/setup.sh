#!/bin/sh
# setup.sh [build]: installs what this machine lacks (Debian, Ubuntu), and nothing when nothing is
# missing: for `build` a C compiler and iproute2, else what `make test` and `make demo` need too.
# The built program needs none of it.
set -eu

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# command:package; sbin directories are looked into too.
PATH="$PATH:/usr/sbin:/sbin"
packages=""
tools="nft:nftables ping:iputils-ping tcpdump:tcpdump ethtool:ethtool iperf3:iperf3 \
  redis-server:redis-server nginx:nginx-light curl:curl socat:socat wrk:wrk"
[ "${1:-}" = build ] && tools=""
for pair in cc:gcc make:make ip:iproute2 $tools; do
  command -v "${pair%%:*}" >/dev/null 2>&1 || packages="$packages ${pair#*:}"
done
# Without recommended packages gcc comes without the C library's headers.
case "$packages" in *gcc*) packages="$packages libc6-dev" ;; esac

if [ -n "$packages" ]; then
  echo "setup: installing$packages"
  # A freshly installed server must not start and take port 80 or 6379 of this machine. A policy
  # that is there already is somebody's own and stays.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 0755 "$policy"
    trap 'as_root rm -f "$policy"' EXIT
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=400 update -qq
  # shellcheck disable=SC2086 # a list of words
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=400 install -y -qq \
    --no-install-recommends $packages
fi

[ "${1:-}" = build ] && exit 0

have_cargo_tool() {
  cargo "$1" --version >/dev/null 2>&1
}

for tool in nextest deny; do
  if ! have_cargo_tool "$tool"; then
    echo "setup: building cargo-$tool"
    # Its own directory: the workspace's settings and target directory are not the tool's.
    (cd / && unset CARGO_TARGET_DIR && cargo install --quiet --locked "cargo-$tool")
  fi
done
