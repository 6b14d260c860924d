#!/usr/bin/env bash
# Formatters, linters and the layer check; --fix formats in place.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VENV:-.venv}/bin
mapfile -t c_files < <(git ls-files 'src/*.c' 'src/*.h' 'include/*.h' 'bridge/*.c' 'bridge/*.cpp' 'bridge/*.h' 'tests/c/*.c' 'tests/races/*.c' 'tests/python/*.cpp' 'examples/*.c' 'examples/*.cpp')
if [ "${1:-}" = --fix ]; then
    [ ${#c_files[@]} = 0 ] || "$bin/clang-format" -i "${c_files[@]}"
    "$bin/ruff" format -q .
    "$bin/ruff" check -q --fix .
    exit
fi
status=0
"$bin/clang-format" --dry-run --Werror "${c_files[@]}" || status=1
"$bin/ruff" check -q . || status=1
"$bin/ruff" format -q --check . || status=1
"$bin/mypy" || status=1
"$bin/python" tools/check_layers.py || status=1
exit $status
