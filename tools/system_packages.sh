#!/usr/bin/env bash
# Installs cmocka, the C test framework: the only dependency of the tests that pip does not provide.
set -euo pipefail
printf '#include <%s.h>\n' stdarg stddef setjmp stdint cmocka | cc -E -xc - > /dev/null 2>&1 && exit 0
as_root=
[ "$(id -u)" = 0 ] || as_root="sudo -n"
if command -v apt-get > /dev/null; then
    $as_root apt-get update -qq && $as_root apt-get install -y -qq libcmocka-dev > /dev/null && exit 0
fi
echo "The C tests need cmocka (Debian and Ubuntu: apt-get install libcmocka-dev; Fedora: libcmocka-devel)." >&2
exit 1
