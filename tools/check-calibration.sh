#!/usr/bin/env bash
# Checks calibration on a machine with an NVIDIA GPU: two runs must agree within 3 %, and a correction must not do harm.
# usage: tools/check-calibration.sh [PREFLOP] [FOLDER]    PREFLOP: the program, FOLDER: where the files go
set -euo pipefail
preflop=${1:-preflop}
folder=${2:-$(mktemp -d)}
"$preflop" calibrate -o "$folder/first.toml"
"$preflop" calibrate -o "$folder/second.toml"
"$preflop" gpus diff "$folder/first.toml" "$folder/second.toml" --within 3
if python3 -c "import torch" 2>/dev/null; then
    "$preflop" measure -o "$folder/measured.csv" || [ $? -eq 1 ]
    "$preflop" fit "$folder/measured.csv" --gpu "$folder/first.toml" -o "$folder/my.correction.json"
fi
echo "files are in $folder"
