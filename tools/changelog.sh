#!/usr/bin/env bash
# changelog.sh cut vX.Y.Z begins the section of a version in CHANGELOG.md with what was unreleased, and today's date.
# changelog.sh notes vX.Y.Z prints that section as the notes of the release: its links lead to the files of the tag. What was fixed since a
# build that was never released is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${1:-} version=${2:-}
repository=https://github.com/holdfast-go/holdfast module=github.com/holdfast-go/holdfast
case $what-$version in
cut-v[0-9]*)
	if grep -q "^## \[${version#v}\]" CHANGELOG.md; then echo "changelog.sh: CHANGELOG.md has a section [${version#v}]" >&2 && exit 1; fi
	cut=$(awk -v title="## [${version#v}] - $(date -u +%F)" \
		'{ print } $0 == "## [Unreleased]" { print "\n" title; found = 1 } END { exit !found }' CHANGELOG.md)
	printf '%s\n' "$cut" >CHANGELOG.md
	;;
notes-v[0-9]*)
	section=$(awk -v title="## [${version#v}]" '/^## / { wanted = index($0, title) == 1; next }
		/^### Fixed since the builds/ { wanted = 0 } wanted' CHANGELOG.md |
		sed -E "s,\]\(([^):#][^):]*)\),](${repository}/blob/$version/\1),g")
	if [ -z "$section" ]; then echo "changelog.sh: CHANGELOG.md has no section [${version#v}]" >&2 && exit 1; fi
	cat <<-EOF
		The library: \`go get $module@$version\`. The command: an archive or a package below, the image
		\`ghcr.io/holdfast-go/holdfast:${version#v}\`, or \`go install $module/cmd/holdfast@$version\`.
		[Upgrading]($repository/blob/$version/docs/upgrading.md) says which versions may run together.
	EOF
	printf '%s\n' "$section"
	;;
*)
	echo 'usage: tools/changelog.sh cut|notes vX.Y.Z' >&2
	exit 2
	;;
esac
