#!/usr/bin/env bash
# _fetch_intel_driver.sh DIR [PACKAGE…]: unpacks Intel's GPU driver and offline compiler, or the named packages, from
# Debian sid into DIR. The system's own packages are not changed. DIR/packages.txt lists their versions, and
# DIR/bin/ocloc runs the compiler with sid's C library. The exit status is 3 if the packages are unavailable.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd); shift
[ $# -gt 0 ] || set -- intel-ocloc libigc2 libigdfcl2 intel-opencl-icd ocl-icd-libopencl1 libstdc++6
[ -x "$dir/bin/ocloc" ] && [ -e "$dir/packages.txt" ] && exit 0
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || { echo "no apt here"; exit 3; }

# the mirror that this machine's apt uses for Debian
sources=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null || true)
mirror=$(grep -oE 'https?://[^ ]*/debian/?( |$)' <<< "$sources" | grep -v security | head -n 1 | tr -d ' ' || true)
[ -n "$mirror" ] || { echo "no Debian mirror in this machine's apt configuration"; exit 3; }
key=$(ls /usr/share/keyrings/debian-archive-keyring.{gpg,pgp} 2> /dev/null | head -n 1 || true)

apt=$dir/apt
rm -rf "$apt"
mkdir -p "$apt"/{parts,preferences,lists/partial,archives/partial,state}
echo "deb [arch=amd64${key:+ signed-by=$key}] $mirror sid main" > "$apt/sources.list"
for part in /etc/apt/apt.conf.d/*; do # proxies and certificates, but no hooks
    [ -f "$part" ] && ! grep -qE '(Pre|Post)-(Invoke|Install)|Dir::' "$part" && cp "$part" "$apt/parts/"
done
: > "$apt/state/status" # nothing is installed: the whole closure is fetched, the C library too
cat > "$apt/apt.conf" << CONF
Dir::Etc::Parts "$apt/parts";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$apt/preferences";
Dir::State "$apt/state";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt";
Dir::Cache::archives "$apt/archives";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Architecture "amd64";
Acquire::Languages "none";
CONF
export APT_CONFIG=$apt/apt.conf DEBIAN_FRONTEND=noninteractive
apt-get -qq update || { echo "Debian sid can't be reached"; exit 3; }
apt-get -qq -y --download-only -o Debug::NoLocking=1 install "$@" || { echo "the packages can't be had"; exit 3; }
mkdir -p "$dir/root" "$dir/bin"
for package in "$apt"/archives/*.deb; do
    dpkg-deb -x "$package" "$dir/root"
    dpkg-deb -W --showformat '${Package} ${Version}\n' "$package"
done > "$apt/packages.txt"
mv "$apt/packages.txt" "$dir/packages.txt"
rm -rf "$apt"
libraries=$dir/root/usr/lib/x86_64-linux-gnu
cat > "$dir/bin/ocloc" << RUN
#!/bin/sh
exec env -u LD_LIBRARY_PATH "$dir/root/usr/lib64/ld-linux-x86-64.so.2" \
    --library-path "$libraries:$libraries/intel-opencl" "$dir"/root/usr/bin/ocloc* "\$@"
RUN
chmod +x "$dir/bin/ocloc"
