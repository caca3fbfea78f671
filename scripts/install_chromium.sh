#!/bin/sh
# Installs Chromium for the browser tests of `make test-all`. Never fails: without Chromium, these tests are skipped.
# Installs it only for root on a system with apt; for other users, prints what to do.
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing chromium for the browser tests..."
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 && exit 0
fi
echo "No chromium here: the browser tests will be skipped."
echo "To run them, install your system's chromium package (Debian: sudo scripts/install_chromium.sh), then repeat."
