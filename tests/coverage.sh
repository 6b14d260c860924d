#!/usr/bin/env bash
# coverage.sh [LEG...]: the lines of src/ and bridge/ that tests run, by folder and file: build/coverage/summary.txt,
# and the table of docs/status.md. Default legs: those of `make test` that run code.
#
# Works on a copy of the tree in build/coverage/tree, because libraries are built into the package's own folder.
# Counters of an earlier run are deleted.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD tree=$PWD/build/coverage/tree tools=$PWD/build/coverage/tools
legs=("$@")
[ ${#legs[@]} -gt 0 ] || legs=(c optimized ops python sharing tile)

if [ ! -f "$tools/.ready" ]; then
    "${PYTHON:-python3}" -m venv "$tools"
    "$tools/bin/python" -m pip install -q -r requirements/coverage.txt
    touch "$tools/.ready"
fi
mkdir -p "$tree"
git ls-files -co --exclude-standard -z | xargs -0 cp -a --parents -u -t "$tree" 2> /dev/null || true # deleted ones
ln -sfn "$root/.venv" "$tree/.venv"
cd "$tree"
.venv/bin/cmake -S . -B build -G Ninja -DCMAKE_MAKE_PROGRAM="$root/.venv/bin/ninja" \
    -DPython_EXECUTABLE="$tree/.venv/bin/python" -DOPENXPU_TESTS=ON -DOPENXPU_COVERAGE=ON > /dev/null
.venv/bin/cmake --build build
find build -name '*.gcda' -delete
status=0
PYTHONPATH="$tree/python" .venv/bin/python tests/legs.py "${legs[@]}" || status=1 # failed tests count, too
"$tools/bin/gcovr" --root . --filter src/ --filter bridge/ --exclude-throw-branches --gcov-ignore-parse-errors=all \
    --merge-mode-functions=merge-use-line-min --json-summary "$root/build/coverage/summary.json" \
    --txt "$root/build/coverage/summary.txt" --html-details "$root/build/coverage/lines.html" -j 2 build
cd "$root"
.venv/bin/python tools/line_coverage.py build/coverage/summary.json
exit $status
