#!/bin/sh
# Sees to a Chromium for the browser tests: finds one, or installs Debian's where that is allowed.
set -eu
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ]; then
    root=""
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    root="no"
fi
if [ "$root" != no ] && command -v apt-get >/dev/null; then
    echo "headlab: installing Chromium for the browser tests" >&2
    $root apt-get update -qq >&2 && $root apt-get install -y -qq --no-install-recommends chromium >&2 && exit 0
fi
echo "headlab: the browser tests need Chromium or Chrome and it cannot be installed from here; install the package chromium, or run: make check" >&2
exit 1
