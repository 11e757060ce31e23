# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/quickstart and tools/check: packages, and steps that tell what they do and how long they took.
# Needs WORK, a directory for logs, and ROOT, the sources. Sets STEPS, what was done, and TICKER; call stop_ticker on exit.

STEPS=()
TICKER=

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Milliseconds since boot or so; only differences mean anything.
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo $((t / 1000)); }
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }

# While a step runs: after 3 s, then every 10 s, how long it has been at it and the last line of its log.
# It waits by reading from a pipe that nobody writes to: a sleep(1) would outlive it and hold our output open.
ticker() {
	local log=$1 began=$2 pause=3 never line
	exec {never}<> <(:)
	until read -r -t $pause -u "$never"; do
		pause=10
		line=$(tail -c 400 "$log" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-100)
		printf '    %4d s  %s\n' $((($(now_ms) - began) / 1000)) "$line"
	done
}

stop_ticker() {
	[ -z "$TICKER" ] || { kill "$TICKER" && wait "$TICKER"; } 2>/dev/null
	TICKER=
}

# step NAME COMMAND...: runs it with its output in a log; on failure shows the end of that log and returns its status.
step() {
	local name=$1 log began status=0 took
	shift
	log=$WORK/$(printf '%s' "$name" | tr -c 'A-Za-z0-9\n' -).log
	say "==> $name"
	began=$(now_ms)
	: >"$log"
	ticker "$log" "$began" &
	TICKER=$!
	"$@" >"$log" 2>&1 </dev/null || status=$?
	stop_ticker
	took=$(($(now_ms) - began))
	STEPS+=("$(printf '%10s  %s' "$(seconds $took)" "$name")")
	if [ $status -ne 0 ]; then
		say "    failed with $status after $(seconds $took); the end of $log:"
		tail -n 40 "$log" | sed 's/^/    | /'
		return $status
	fi
	say "    $(seconds $took)"
}

print_steps() { printf '%s\n' "${STEPS[@]}"; }

# deps KIND...: the packages of these kinds.
deps() {
	local kinds=" $* " package kind why
	while read -r package kind why; do
		case $package in ''|'#'*) continue ;; esac
		case $kinds in *" $kind "*) echo "$package" ;; esac
	done <"$ROOT/tools/deps"
}

why_needed() { sed -n "s/^$1[[:space:]]\{1,\}[a-z]\{1,\}[[:space:]]\{1,\}//p" "$ROOT/tools/deps"; }

# Those of the given packages, or what provides them, that are not installed.
not_installed() {
	local have p
	have=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Provides}\n' 2>/dev/null | sed -n 's/^installed//p' | tr -d ',' | tr '\n' ' ')
	for p; do
		case "$have " in *" $p "*) ;; *) echo "$p" ;; esac
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		die "root is needed for: $*"
	fi
}

apt_update() { as_root apt-get update -q; }
apt_install() { as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"; }

# install_missing KIND...: leaves apt alone when nothing is missing.
install_missing() {
	local missing p
	command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
		die "this needs Debian's apt-get; elsewhere install what tools/deps lists and use cmake by hand"
	mapfile -t missing < <(not_installed $(deps "$@"))
	if [ ${#missing[@]} -eq 0 ]; then
		say "==> packages: all there"
		return
	fi
	say "==> packages to install with apt-get:"
	for p in "${missing[@]}"; do printf '    %-20s %s\n' "$p" "$(why_needed "$p")"; done
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install ${missing[*]}"
		sudo -v || die "sudo was refused; as root run: apt-get install ${missing[*]}"
	fi
	step "update package lists" apt_update || return
	step "install ${#missing[@]} packages" apt_install "${missing[@]}"
}

# What rootfs/build downloads. Package lists that are absent or name versions that are gone are refreshed once.
fetch_template_packages() {
	"$ROOT/rootfs/build" --fetch --name base && return
	apt_update && "$ROOT/rootfs/build" --fetch --name base
}
