#!/bin/sh
# Measures the tool's own speed on two quiet cores, with binaries that were built before: sh tools/measure/speed.sh BINARIES OUT [SECONDS]
# Needs taskset; writes OUT/speed.txt. With 600 seconds it also shows whether the server's memory stays flat.
set -eu
bin=$1 out=$2 seconds=${3:-60}
on_two() { taskset -c 0,1 "$@"; }
{
    uname -a
    uptime
    echo "predictions a second, one by one and together (400,000 wanted)"
    taskset -c 0 "$bin/preflop-bench"
    echo "start of predict resnet152, 50 runs (10 ms each wanted), and of a program that does nothing"
    for program in "$bin/preflop predict resnet152 --mode train --gpu h200" "$bin/preflop-nothing"; do
        begin=$(date +%s%N)
        for _ in $(seq 50); do
            $program >/dev/null
        done
        echo "$(($(($(date +%s%N) - begin)) / 50000)) us: $program"
    done
    if [ -f target/bench-ops.csv ]; then
        echo "rows of preflop ops (300,000 a second wanted)"
        begin=$(date +%s%N)
        on_two "$bin/preflop" ops target/bench-ops.csv --gpu h200 >/dev/null
        rows=$(($(wc -l <target/bench-ops.csv) - 1))
        echo "$((rows * 1000000 / $(($(($(date +%s%N) - begin)) / 1000)))) rows/s"
    fi
    echo "server (2,000 different answers a second, p99 under 250 ms, 200 clients wanted)"
    on_two "$bin/preflop-load" "$bin/preflop" "$seconds" 200
} 2>&1 | tee "$out/speed.txt"
