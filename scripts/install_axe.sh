#!/bin/sh
# Installs axe-core for the accessibility test of `make test-all`. Never fails: without axe-core, the test is skipped.
[ -f tests/.axe/node_modules/axe-core/axe.min.js ] && exit 0
command -v npm >/dev/null 2>&1 && npm install --silent --no-audit --no-fund --prefix tests/.axe axe-core@4 >/dev/null 2>&1 && exit 0
echo "No axe-core here: the accessibility test will be skipped."
echo "To run it, install Node.js, then: npm install --prefix tests/.axe axe-core@4"
