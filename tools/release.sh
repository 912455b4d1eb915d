#!/usr/bin/env bash
# release.sh vX.Y.Z makes the commit and the tags of a release, and pushes nothing: it prints the command that does.
# release.sh --dry-run vX.Y.Z [FOLDER] does the same in a clone, where it also cuts the section of the changelog unless that is there.
# It leaves the clone, FOLDER/clone, in a folder that it makes, with a module proxy, FOLDER/proxy; without FOLDER nothing stays.
# Both then install the command from there with "go install …@vX.Y.Z", and get the library and a driver with "go get" from a module
# proxy made of the tags, as a user will.
#
# The modules that others use require the root module, which they replace by "../.." in this repository. "go install" refuses
# a module with a replacement, so the tagged commit has none: it requires vX.Y.Z of the root module, with the checksum of its
# files. A module's files are those outside the folders of other modules, so the same commit can carry the tags of all. The
# branch keeps the replacements: the commit is beside it, and only the tags refer to it.
set -euo pipefail
dry=false
if [ "${1:-}" = --dry-run ]; then dry=true && shift; fi
version=${1:-} folder=${2:-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || { [ -n "$folder" ] && ! $dry; }; then
	echo 'usage: tools/release.sh vX.Y.Z, or tools/release.sh --dry-run vX.Y.Z [FOLDER]' >&2
	exit 2
fi
if [ -n "$folder" ]; then
	mkdir "$folder"
	folder=$(cd "$folder" && pwd)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}
root=github.com/holdfast-go/holdfast
# A module comes after those that it requires.
modules="$(echo drivers/*/go.mod | sed 's,/go\.mod,,g') otelholdfast cmd/holdfast holdfastcontainers holdfastvet adapters/kuberneteslock"

fail() { echo "release.sh: $*" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || $dry || fail 'the working tree has changes; a release is made of a commit'
if git rev-parse -q --verify "refs/tags/$version" >/dev/null; then fail "the tag $version exists"; fi
case $version in v0.* | v1.*) ;; *) fail "from v2 on, the module's path must end with the major version" ;; esac
untrue='until (the first|there is a) release|no release yet|not (been )?released yet'
if git grep -niE "$untrue" -- '*.md' ':!CHANGELOG.md'; then
	$dry || fail 'these lines are not true of a release'
	echo 'a release needs these lines changed first'
fi
$dry || grep -q "^## \[${version#v}\]" CHANGELOG.md || fail "CHANGELOG.md has no section [${version#v}]"

work=$folder
if [ -z "$work" ]; then
	work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-release-XXXXXX")
	trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
fi
git clone --quiet --no-local . "$work/clone"
cd "$work/clone"
git config user.name "$(git -C "$OLDPWD" config user.name || echo release)"
git config user.email "$(git -C "$OLDPWD" config user.email || echo release@localhost)"

if $dry && ! grep -q "^## \[${version#v}\]" CHANGELOG.md; then
	tools/changelog.sh cut "$version"
	git commit --quiet --all --message "Changelog: $version"
fi
echo "notes of the release: $(tools/changelog.sh notes "$version" | wc -w) words"

# In this script the go command finds the root module in the clone, and everything else where it usually does.
printf '[url "file://%s"]\n\tinsteadOf = https://%s\n[safe]\n\tdirectory = *\n' "$work/clone" "$root" >"$work/gitconfig"
export GIT_CONFIG_GLOBAL=$work/gitconfig GIT_CONFIG_NOSYSTEM=1 GOFLAGS=-modcacherw GOWORK=off GOTOOLCHAIN=local
private=(env "GOPRIVATE=$root" "GONOSUMDB=$root" "GONOPROXY=$root")
cached=$("$go" env GOMODCACHE)
export GOMODCACHE=$work/mod # a version of the same name from an earlier try is not in it
export GOPROXY="file://$cached/cache/download,$("$go" env GOPROXY)"

git tag "$version" # its files of the root module are those of the release; see above
tags=$version
for module in $modules; do
	echo "$module: go mod tidy"
	own=$(grep -oE "$root(/[a-z0-9/]+)? v0\.0\.0" "$module/go.mod" | cut -d' ' -f1 | sort -u || true)
	for required in $own; do
		"$go" -C "$module" mod edit -dropreplace="$required" -require="$required@$version"
	done
	if grep -qE '^replace|=>' "$module/go.mod"; then fail "$module/go.mod still has a replacement"; fi
	(cd "$module" && "${private[@]}" "$go" mod tidy && "${private[@]}" "$go" list -mod=readonly -deps ./... >/dev/null) ||
		fail "$module does not resolve"
	git diff --quiet || git commit --quiet --all --message "$module requires $version"
	git tag "$module/$version" # the modules after it find it by this tag
	tags="$tags $module/$version"
done
changed=$(git diff --name-only "$version" HEAD)
for file in $changed; do
	case " $modules " in *" ${file%/go.*} "*) ;; *) fail "$file changed" ;; esac
done
git reset --quiet --soft "$version"
git commit --quiet --all --message "Release $version: modules require this version"
for tag in $tags; do git tag --force "$tag" >/dev/null; done

echo "installing $root/cmd/holdfast@$version, as a user will"
mkdir "$work/mod2" "$work/bin"
GOMODCACHE=$work/mod2 GOBIN=$work/bin CGO_ENABLED=0 "${private[@]}" "$go" install -trimpath "$root/cmd/holdfast@$version"
"$work/bin/holdfast" version
"$work/bin/holdfast" version | grep -q "holdfast $version " || fail "the command has another version"
echo "getting $root and its drivers from a proxy made of the tags, as a user will"
mkdir "$work/mod3" "$work/mod4" "$work/user"
ln -s mod3/cache/download "$work/proxy"
for module in "" $modules; do
	GOMODCACHE=$work/mod3 "${private[@]}" "$go" mod download "$root${module:+/$module}@$version" # it keeps what a proxy serves
done
cat >"$work/user/main.go" <<-EOF
	package main

	import (
		"context"

		"$root"
		_ "$root/drivers/file"
		_ "$root/drivers/postgres"
	)

	func main() {
		client, err := holdfast.Open(context.Background(), "file:$work/locks")
		if err != nil {
			panic(err)
		}
		if err := client.Do(context.Background(), "job", func(context.Context) error { return nil }); err != nil {
			panic(err)
		}
	}
EOF
(
	cd "$work/user"
	export GOMODCACHE=$work/mod4 GOPROXY="file://$work/proxy,$GOPROXY" "GONOSUMDB=$root"
	"$go" mod init example.com/user 2>/dev/null
	"$go" get "$root@$version" "$root/drivers/postgres@$version" 2>"$work/get.log" || { cat "$work/get.log"; exit 1; }
	"$go" mod tidy 2>"$work/get.log" || { cat "$work/get.log"; exit 1; }
	"$go" run .
	grep -F "$root" go.mod
)
if $dry; then
	git show --stat --format='%s%n' HEAD
	echo "dry run: the tags would be: $tags"
	exit 0
fi
cd "$OLDPWD" || exit
for tag in $tags; do git fetch --quiet "$work/clone" "refs/tags/$tag:refs/tags/$tag"; done
echo "made the tags. GitHub starts no workflow for a push of more than three tags, so $version is pushed by itself, and last:"
echo "git push origin ${tags#* } && git push origin $version"
