#!/usr/bin/env bash
# release-check.sh [BASE] checks what a release promises, of the commit that is checked out:
#   - the released command is the same, byte for byte, if it is built again in another folder, without what the first build has cached;
#     that which "go install" builds is not larger than 30 MiB for Linux;
#   - the library's API is compatible with that of BASE, a tag or commit: by default the last tag;
#   - the licence of every module in the command is known;
#   - "go install" and "go get" work with the commit that tools/release.sh would tag;
#   - goreleaser makes everything that it would publish, twice, and archives, packages and formula are the same. The image needs a running
#     engine of Docker, such as that of integration/images/engine.sh; no registry is asked.
# PLATFORMS names other systems to build for. CHECKS names some of the checks: build api licences install goreleaser.
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
trap 'rm -rf "$work"' EXIT
wanted() { case " $checks " in *" $1 "*) true ;; *) false ;; esac; }

if wanted build; then
	echo "the same bytes from $(git rev-parse --short HEAD), built twice with $("$go" env GOVERSION):"
	git clone --quiet . "$work/first"
	git clone --quiet . "$work/second/with a longer name"
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
	[ -n "$base" ] || base=$(git tag --list 'v[0-9]*' --sort=-version:refname --no-contains HEAD | head -n 1)
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
	"$go" run ./tools/licences
	echo 'licences: .cache/release/THIRD_PARTY.md has them all'
fi

if wanted install; then
	next=v0.0.1-check
	tools/release.sh --dry-run $next >"$work/release.log" 2>&1 || { cat "$work/release.log"; exit 1; }
	echo "release.sh --dry-run: $(grep "^holdfast $next" "$work/release.log")"
	sed -n '/a proxy made of the tags/,/^dry run/p' "$work/release.log"
fi

if wanted goreleaser; then
	mkdir -p "$bin"
	for tool in "goreleaser github.com/goreleaser/goreleaser/v2@$goreleaser" "syft github.com/anchore/syft/cmd/syft@$syft"; do
		[ -x "$bin/${tool%% *}" ] || GOFLAGS='' GOBIN=$bin "$go" install "${tool#* }"
	done
	skip=publish
	docker version >/dev/null 2>&1 || { skip=publish,docker && echo 'Docker does not answer, so no image is made'; }
	for try in first second; do
		git clone --quiet . "$work/$try-release"
		(cd "$work/$try-release" && PATH=$bin:$PATH goreleaser check --quiet tools/goreleaser.yaml &&
			PATH=$bin:$PATH goreleaser release -f tools/goreleaser.yaml --snapshot --skip=$skip) >"$work/$try.log" 2>&1 ||
			{ cat "$work/$try.log"; exit 1; }
		dist=$work/$try-release/.cache/dist
		# A list of contents has a number of its own and the time at which it was made.
		grep -v 'sbom' "$dist/SHA256SUMS" >"$work/$try.sums"
		sha256sum <"$dist/homebrew/holdfast.rb" >>"$work/$try.sums"
	done
	cmp "$work/first.sums" "$work/second.sums"
	(cd "$dist" && ls -l -- *.tar.gz *.zip *.deb *.rpm *.json SHA256SUMS homebrew/*.rb) | awk '{ print $5, $9 }'
	echo 'goreleaser: archives, packages and formula are the same twice'
	if [ $skip = publish ]; then
		image=$(docker images --format '{{.Repository}}:{{.Tag}}' | awk '/holdfast-go\/holdfast:.*-amd64/ && !n++')
		docker run --rm "$image" version
		docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep 'holdfast-go/holdfast:'
	fi
fi
