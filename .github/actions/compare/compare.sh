#!/usr/bin/env bash
# Measures two commits of the repository in the working directory: base, head, head, base, so that a machine that
# becomes slower meanwhile is not taken for a slower commit. Inputs are the variables that action.yml sets.
set -euo pipefail

fail() {
    echo "::error::$1"
    exit 2
}

case $UNSURE in pass | fail) ;; *) fail "unsure: '$UNSURE' is neither pass nor fail" ;; esac
case $ROUNDS in [1-9] | [1-9][0-9]) ;; *) fail "rounds: '$ROUNDS' is no number from 1 to 99" ;; esac
head=$(git rev-parse HEAD)
base=$(git rev-parse --verify --quiet "${BASE:-HEAD^}^{commit}") ||
    fail "the commit ${BASE:-HEAD^} is not here: check out with fetch-depth: 0"

place=$(mktemp -d "${RUNNER_TEMP:-/tmp}/gputui-XXXXXX")
results=$place/results
mkdir "$results"
trap 'for side in "$place"/base "$place"/head; do [ ! -d "$side" ] || git worktree remove --force "$side"; done' EXIT

"$PYTHON" -m venv "$place/gputui"
"$place/gputui/bin/pip" install --quiet "$(dirname "$0")/../../.."
for side in base head; do
    git worktree add --quiet --detach "$place/$side" "${!side}"
    "$PYTHON" -m venv "$place/$side-env"
    echo "::group::install $side ${!side}"
    (
        . "$place/$side-env/bin/activate"
        cd "$place/$side"
        bash -euo pipefail -c "$INSTALL"
    )
    echo "::endgroup::"
done

# Both sides run the head's file: the work must be the same, only what it imports differs.
profile=$PROFILE
[ ! -e "$place/head/$PROFILE" ] || profile=$place/head/$PROFILE
read -ra options <<<"$OPTIONS"
for ((round = 0; round < ROUNDS; round++)); do
    for side in base head head base; do
        echo "::group::measure $side"
        (
            cd "$place/$side"
            "$place/gputui/bin/gputui" run "$profile" --python "$place/$side-env/bin/python" --yes \
                --db "$results/$side.db" --label "$side" "${options[@]}"
        ) || fail "$side was not measured"
        echo "::endgroup::"
    done
done

export GPUTUI=$place/gputui/bin/gputui RESULTS=$results HEAD=$head BASE=$base
"$(dirname "$0")/conclude.sh"
