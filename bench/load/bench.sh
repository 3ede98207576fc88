#!/usr/bin/env bash
# bench.sh PORT [SECONDS]: five produce shapes against a topic "t" of 16 partitions. Build first:
#   gcc -O2 -march=native -o lg lg.c; gcc -O2 -march=native -o sink sink.c; python mkreq.py requests   (needs fastcrc)
set -eu
port=$1; secs=${2:-3}; d=requests
g() { python3 -c "import json;print(json.load(open('$d/meta.json'))['$1']['$2'])"; }
shape() { printf '%-14s ' "$1"; ./lg produce "$port" "$2" "$3" "$secs" "$d/$4" "$(g "$4" poff)" 16 "$5" "$6"; }
shape "1MB c2 d2"    2  2 s1kx1000 1024000 1000
shape "15KB c1 d8"   1  8 s1kx15   15360   15
shape "100B c1 d1"   1  1 s100x1   100     1
shape "100B c16 d1"  16 1 s100x1   100     1
shape "100B c16 d16" 16 16 s100x1  100     1
