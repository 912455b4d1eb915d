#!/usr/bin/env bash
# before-fix.sh FIX PACKAGE TESTS [FLAGS…] runs tests on the version before a fix: the parent of the commit FIX, with the
# tests and test data of FIX. TESTS is a regular expression, FLAGS are go test's. FROM names another commit that has the tests,
# ONLY the file to take from it. tools/track-record.tsv lists the faults that can be seen this way.
#
# It ends with 0 if a test fails as it must, with 1 if all pass, and with 2 if nothing ran: the code does not compile, or no
# test has such a name. The working tree is not touched; the older version is checked out in a temporary folder.
set -euo pipefail
if [ $# -lt 3 ]; then
	sed -n 's/^# \(before-fix.sh .*\)/usage: \1/p' "$0" | head -1 >&2
	exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fix=$1 package=$2 tests=$3
shift 3
from=${FROM:-$fix} only=${ONLY:-}
cache=$PWD/.cache

dir=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-before-XXXXXX")
trap 'git worktree remove --force "$dir/tree"; rm -rf "$dir"' EXIT
git worktree add --quiet --detach "$dir/tree" "$fix^"
mkdir -p "$cache" && ln -s "$cache" "$dir/tree/.cache" # the servers that the tests need
cd "$dir/tree"
git diff --name-only --diff-filter=d "$fix^" "$from" -- "$package/*_test.go" "$package/testdata/**" | while read -r file; do
	case ${file#"${package#./}"/} in */*) case $file in */testdata/*) ;; *) continue ;; esac ;; esac # other packages
	[ -z "$only" ] || [ "${file##*/}" = "$only" ] || continue
	git checkout --quiet "$from" -- "$file"
done

module=$package # the folder of the module that has the package
while [ ! -f "$module/go.mod" ]; do module=$(dirname "$module"); done
package=./$(realpath --relative-to="$module" "$package")
status=0
(cd "$module" && ${GO:-go} test -vet=off -count=1 -run "$tests" -v "$@" "$package") >"$dir/output" 2>&1 || status=$?
cat "$dir/output"
if grep -qE '^ *--- FAIL|^panic:|^--- FAIL|^WARNING: DATA RACE' "$dir/output"; then
	echo "before $fix: fails"
elif [ $status = 0 ] && grep -q '^=== RUN' "$dir/output"; then
	echo "before $fix: all tests passed"
	exit 1
else
	echo "before $fix: no test ran"
	exit 2
fi
