#!/usr/bin/env bash
# lint.sh [--fix | --changed]: formatters, linters, spelling, and the checks of layers, circles, words and line lengths.
# --fix formats in place; --changed looks only at files that differ from origin/main (or from HEAD, without such a
# branch). Files of the bridge that differ are also compiled, each by itself.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VENV:-.venv}/bin
c_patterns=('*.c' '*.h' '*.cpp' '*.cl')
python=(.)
base=$(git merge-base HEAD origin/main 2> /dev/null || git rev-parse HEAD)
mapfile -t bridge < <(git diff --name-only --diff-filter=d "$base" -- 'bridge/*.cpp')
if [ "${1:-}" = --changed ]; then
    mapfile -t c_files < <(git diff --name-only --diff-filter=d "$base" -- "${c_patterns[@]}")
    mapfile -t python < <(git diff --name-only --diff-filter=d "$base" -- '*.py')
    mapfile -t texts < <(git diff --name-only --diff-filter=d "$base")
else
    mapfile -t c_files < <(git ls-files "${c_patterns[@]}")
    mapfile -t texts < <(git ls-files)
fi
if [ "${1:-}" = --fix ]; then
    "$bin/clang-format" -i "${c_files[@]}"
    "$bin/ruff" format -q .
    "$bin/ruff" check -q --fix .
    exit
fi
status=0
if [ ${#python[@]} -gt 0 ]; then
    "$bin/mypy" & # takes longest
    types=$!
    "$bin/ruff" check -q "${python[@]}" || status=1
    "$bin/ruff" format -q --check "${python[@]}" || status=1
fi
[ ${#c_files[@]} = 0 ] || "$bin/clang-format" --dry-run --Werror "${c_files[@]}" || status=1
[ ${#texts[@]} = 0 ] || "$bin/codespell" "${texts[@]}" || status=1
"$bin/python" tools/check_layers.py || status=1
"$bin/python" tools/check_circles.py || status=1
"$bin/python" tools/check_words.py || status=1
"$bin/python" tools/check_lines.py || status=1
[ ${#bridge[@]} = 0 ] || "$bin/python" tools/check_alone.py "${bridge[@]}" || status=1
[ -z "${types:-}" ] || wait "$types" || status=1
exit $status
