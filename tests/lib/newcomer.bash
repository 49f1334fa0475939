# newcomer.bash: for tests that type what a new user would type. Loaded by each of tests/newcomer.
# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0

. "$(dirname "${BASH_SOURCE[0]}")/store.bash"

# forge is in the PATH, nothing is configured, and the current directory is the user's project.
setup_newcomer() {
    EXAMPLES=$BATS_TEST_DIRNAME/../../examples
    EXAMPLES=$(realpath "$EXAMPLES")
    setup_forge
    # The trial run of setup_forge is not ours.
    rm -rf "$FORGE_HOME"
    unset FORGE_CONFIG
    mkdir -p "$T/bin" "$T/project"
    ln -sf "$FORGE" "$T/bin/forge"
    export PATH=$T/bin:$PATH XDG_CONFIG_HOME=$T/.config
    cd "$T/project" || return
}
