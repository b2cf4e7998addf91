#!/bin/sh
# Usage: PYTHON=python3 tools/install.sh VENV requirements.txt [more.txt]
# Makes the virtual environment VENV and installs into it, unless it holds just that already.
set -eu
venv=$1
shift
python=${PYTHON:-python3}

stop() {
    printf 'headlab: %s\n' "$1" >&2
    exit 1
}

if [ ! -x "$venv/bin/python" ]; then
    command -v "$python" >/dev/null || stop "no $python on this machine; install Python 3.11 or newer, or name it: make app PYTHON=/path/to/python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        stop "$python is $("$python" -V 2>&1); headlab needs 3.11 or newer: make app PYTHON=python3.11"
    echo "headlab: making the virtual environment $venv" >&2
    "$python" -m venv "$venv" >&2 || {
        rm -rf "$venv"
        stop "$python cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"
    }
fi
"$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
    stop "$venv has no pip; delete it (rm -r $venv), on Debian or Ubuntu run: apt-get install python3-venv, then try again"

# One stamp a file: `make test` after `make app` adds the tools and leaves the rest alone.
for list in "$@"; do
    stamp="$venv/.installed-$list"
    wanted=$(cat "$list" requirements-nodeps.txt pyproject.toml | cksum)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && continue
    echo "headlab: installing $list (the first time takes minutes: torch is large)" >&2
    more=
    [ "$list" = requirements-decoder.txt ] && more=--no-deps
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $more -r "$list" >&2 ||
        stop "pip could not install $list (its message is above); check the network and the free disk space, then run the same command again"
    if [ "$list" = requirements.txt ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-nodeps.txt -e . >&2 ||
            stop "pip could not install headlab itself (its message is above); run the same command again"
    fi
    echo "$wanted" >"$stamp"
done
