#!/usr/bin/env bash
# release-check.sh [BASE] checks what a release promises. The release is that whose commit is checked out, or else the next one: then
# "tools/release.sh --dry-run" makes in a clone the commit that would be tagged, from which "go install" and "go get" must work. Of it:
#   - the released command is the same, byte for byte, if it is built again in another folder, without what the first build has cached;
#     that which "go install" builds is not larger than 30 MiB for Linux;
#   - the library's API is compatible with that of BASE, a tag or commit: by default the last tag;
#   - the licence of every module in the command is known;
#   - goreleaser makes everything that it would publish, twice, and archives, packages and formula are the same. The image needs a running
#     engine of Docker, such as that of integration/images/engine.sh; no registry is asked.
# PLATFORMS names other systems to build for. CHECKS names some of the checks: build api licences install goreleaser; install is the
# dry run, which all but api begin with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go} base=${1:-} bin=$PWD/.cache/bin
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}
checks=${CHECKS:-build api licences install goreleaser}
root=github.com/holdfast-go/holdfast
max_mib=30 # of the command that "go install" builds for Linux
goreleaser=v2.9.0 syft=v1.22.0 # as in .github/workflows/release.yml
apidiff=v0.0.0-20250620022241-b7579e27df2b
work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-check-XXXXXX")
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
wanted() { case " $checks " in *" $1 "*) true ;; *) false ;; esac; }

# The version: of the tag; or of the section of the changelog that is begun; or the one after the last tag.
source=$PWD
version=$(git tag --points-at HEAD --list 'v[0-9]*')
if [ -z "$version" ]; then
	version=$(sed -nE 's/^## \[([0-9][^]]*)\].*/v\1/p' CHANGELOG.md | sed -n 1p)
	if [ -z "$version" ] || git rev-parse -q --verify "refs/tags/$version" >/dev/null; then
		version=$(git -c versionsort.suffix=- tag --list 'v[0-9]*' --sort=-version:refname | awk -F. 'NR == 1 { print $1 "." $2 + 1 ".0" }')
		version=${version:-v0.1.0}
	fi
	if [ "$checks" != api ]; then
		tools/release.sh --dry-run "$version" "$work/release" >"$work/release.log" 2>&1 || { cat "$work/release.log"; exit 1; }
		source=$work/release/clone
		# From here on the go command finds the released modules where release.sh put them.
		cached=file://$("$go" env GOMODCACHE)/cache/download
		export GOPROXY="file://$work/release/proxy,$cached,$("$go" env GOPROXY)" GONOSUMDB=$root GOMODCACHE=$work/release/mod
	fi
fi

if wanted build; then
	echo "the same bytes from $version, $(git -C "$source" rev-parse --short HEAD), built twice with $("$go" env GOVERSION):"
	git clone --quiet "$source" "$work/first"
	git clone --quiet "$source" "$work/second/with a longer name"
	build() { # FOLDER PLATFORM OUTPUT [TAGS]: the flags of tools/goreleaser.yaml, where TAGS is full
		(cd "$1/cmd/holdfast" && CGO_ENABLED=0 GOFLAGS='' GOOS=${2%/*} GOARCH=${2#*/} \
			"$go" build -trimpath -tags "${4-full}" -ldflags '-s -w' -o "$3" .)
	}
	for platform in $platforms; do
		build "$work/first" "$platform" "$work/a"
		GOCACHE=$work/cache build "$work/second/with a longer name" "$platform" "$work/b"
		cmp "$work/a" "$work/b"
		printf '%-14s %s, %s bytes\n' "$platform" "$(sha256sum <"$work/a" | cut -d' ' -f1)" "$(wc -c <"$work/a")"
		case $platform in linux/*)
			build "$work/first" "$platform" "$work/a" ''
			size=$(wc -c <"$work/a")
			printf '%-14s %s bytes by "go install"\n' '' "$size"
			[ "$size" -le $((max_mib << 20)) ] || { echo "that is more than $max_mib MiB"; exit 1; }
			;;
		esac
	done
fi

if wanted api; then
	# The tagged commits are beside the branch, so the last tag is the one with the highest version.
	[ -n "$base" ] || base=$(git -c versionsort.suffix=- tag --list 'v[0-9]*' --sort=-version:refname --no-contains HEAD | head -n 1)
	if [ -z "$base" ]; then
		echo 'API: there is no tag to compare with; name a commit: make release-check BASE=COMMIT'
	else
		[ -x "$bin/apidiff" ] || GOBIN=$bin "$go" install golang.org/x/exp/cmd/apidiff@$apidiff
		git clone --quiet . "$work/api"
		git -C "$work/api" checkout --quiet --detach "$(git rev-parse "$base^{commit}")"
		(cd "$work/api" && "$bin/apidiff" -m -w "$work/base.api" $root 2>/dev/null) # it names the internal packages that it leaves out
		"$bin/apidiff" -m -w "$work/now.api" $root 2>/dev/null
		# Packages in internal folders are nobody's API, nor are tests and tools.
		incompatible=$("$bin/apidiff" -m -incompatible "$work/base.api" "$work/now.api" | grep -vE '/(internal|test|tools)/' || true)
		if [ -z "$incompatible" ]; then
			echo "API: compatible with $base"
		else
			echo "API: not compatible with $base:"
			echo "$incompatible"
			case $base in v[1-9]*) exit 1 ;; esac
			echo 'Before version 1 that is allowed; the changelog must name it.'
		fi
	fi
fi

if wanted licences; then
	(cd "$source" && "$go" run ./tools/licences)
	echo "licences: the page of $version has those of $(grep -c '^| .* | v[0-9]' "$source/.cache/release/THIRD_PARTY.md") modules"
fi

if wanted install && [ "$source" != "$PWD" ]; then
	echo "release.sh --dry-run: $(grep "^holdfast $version" "$work/release.log")"
	sed -n '/a proxy made of the tags/,/^dry run/p' "$work/release.log"
fi

if wanted goreleaser; then
	mkdir -p "$bin"
	for tool in "goreleaser github.com/goreleaser/goreleaser/v2@$goreleaser" "syft github.com/anchore/syft/cmd/syft@$syft"; do
		[ -x "$bin/${tool%% *}" ] || GOFLAGS='' GOBIN=$bin "$go" install "${tool#* }"
	done
	skip=publish,announce
	docker version >/dev/null 2>&1 || { skip=$skip,docker && echo 'Docker does not answer, so no image is made'; }
	"$source/tools/changelog.sh" notes "$version" >"$work/notes.md"
	for try in first second; do
		git clone --quiet "$source" "$work/$try-release"
		(cd "$work/$try-release" && export PATH="$bin:$PATH" GORELEASER_CURRENT_TAG="$version" &&
			goreleaser check --quiet tools/goreleaser.yaml &&
			goreleaser release -f tools/goreleaser.yaml --skip=$skip --release-notes "$work/notes.md") >"$work/$try.log" 2>&1 ||
			{ cat "$work/$try.log"; exit 1; }
		dist=$work/$try-release/.cache/dist
		# A list of contents has a number of its own and the time at which it was made.
		grep -v 'sbom' "$dist/SHA256SUMS" >"$work/$try.sums"
		sha256sum <"$dist/homebrew/holdfast.rb" >>"$work/$try.sums"
	done
	cmp "$work/first.sums" "$work/second.sums"
	(cd "$dist" && ls -l -- *.tar.gz *.zip *.deb *.rpm *.json SHA256SUMS homebrew/*.rb) | awk '{ print $5, $9 }'
	echo 'goreleaser: archives, packages and formula are the same twice'
	if [ $skip = publish,announce ]; then
		image=ghcr.io/holdfast-go/holdfast:${version#v}
		docker run --rm "$image-amd64" version >"$work/version"
		cat "$work/version"
		grep -q "^holdfast $version " "$work/version"
		docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep "^$image-"
	fi
fi
