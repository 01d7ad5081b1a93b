#!/usr/bin/env bash
# Everything that only a GPU can show, on the first box that has one. See README.md beside this.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" tests/gpu/day.py "$@"
