#!/bin/sh
# Chromium for the tests that look at pages in a browser. Best effort: without it those tests are skipped and say so.
# Only a root user on a system with apt gets it installed; others are told what to do.
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "Installing chromium for the browser tests..."
  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium) >/dev/null 2>&1 && exit 0
fi
echo "No chromium here: the browser tests will be skipped (install the chromium package to run them)."
