#!/bin/bash
# fuzz.sh [SECONDS]: libFuzzer on every target, SECONDS (60) each, starting from its corpus.
# What it finds new goes to build-fuzz/; a crash stays there as crash-*.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
seconds=${1:-60}
mkdir -p build-fuzz
[ -e build/config-build.h ] || meson setup build
for source in tests/fuzz/fuzz-*.c; do
    target=$(basename "$source" .c)
    target=${target#fuzz-}
    # shellcheck disable=SC2046 # words
    clang -g -O1 -std=gnu17 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Isrc -Ibuild \
        -include src/base/banned.h -o "build-fuzz/$target" "$source" src/base/*.c src/config/*.c src/runtime/pyjson.c src/server/{body,target,utf8}.c src/server/mcp_{content,message}.c \
        $(pkg-config --cflags --libs yaml-0.1 jansson libcrypto libpq libcurl)
    mkdir -p "build-fuzz/new-$target"
    echo "fuzz-$target: $seconds s"
    "build-fuzz/$target" -max_total_time="$seconds" -timeout=5 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/" "build-fuzz/new-$target" "tests/fuzz/corpus/$target"
done
