#!/bin/sh
# Ranks the layouts of study.json. FORETRAIN names the program; without it the one on PATH runs.
cd "$(dirname "$0")" || exit 1
exec "${FORETRAIN:-foretrain}" plan study.json --top 5 "$@"
