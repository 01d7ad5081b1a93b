#!/usr/bin/env bash
# Compares $RESULTS/base.db with $RESULTS/head.db, writes the outputs and the summary of the step, and ends with 0, or
# with 1 where the head is slower by more than $LIMIT % (and where that is not sure, if $UNSURE is `fail`).
set -euo pipefail

said=$RESULTS/outcome.txt ended=0
"$GPUTUI" compare "$RESULTS/base.db" "$RESULTS/head.db" --pool --fail-if-slower "$LIMIT" \
    --format markdown -o "$RESULTS/comparison.md" >"$said" 2>&1 || ended=$?
cat "$said"
case $ended in
0) conclusion=success ;;
1) conclusion=failure ;;
5) conclusion=neutral ;;
*)
    echo "::error::the results could not be compared (exit $ended)"
    exit 2
    ;;
esac
gate=$(grep -m 1 '^gate: ' "$said" | sed "s|$RESULTS/||g; s|:\$||")
printf '%s\n' "conclusion=$conclusion" "results=$RESULTS" >>"$GITHUB_OUTPUT"
{
    echo "### Speed of ${HEAD:0:8} beside ${BASE:0:8}: ${gate#gate: }"
    echo
    sed "s|$RESULTS/||g" "$RESULTS/comparison.md"
} >>"$GITHUB_STEP_SUMMARY"
case $conclusion in
failure)
    echo "::error::$gate"
    exit 1
    ;;
neutral)
    echo "::warning::$gate"
    [ "$UNSURE" = pass ]
    ;;
esac
