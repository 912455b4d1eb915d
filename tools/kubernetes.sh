#!/usr/bin/env bash
# kubernetes.sh builds the API server of Kubernetes and etcd, once, into .cache/kubernetes-VERSION, and runs the tests of the driver
# on them: conformance, rights that are taken away, crashes, client-go's elector on one Lease. Then it runs the tests of the driver for etcd
# on that etcd: members of the one that tests fetch come to differ when they are killed. The build takes 10 minutes on two idle
# processors; "kubernetes.sh build" does no more. FLAGS go to go test. FOR is how long each of the two long tests runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
version=1.37.2 # of Kubernetes; etcd is of the version that it requires
go=${GO:-go} bin=${HOLDFAST_TEST_KUBERNETES_BIN:-$PWD/.cache/kubernetes-$version}

# k8s.io/kubernetes replaces 33 modules by folders of its repository. The published ones are the same, by other version numbers.
build() ( # in a subshell, for the sake of cd
	export CGO_ENABLED=0 GOWORK=off
	source=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-kubernetes-XXXXXX")
	trap 'rm -rf "$source"' EXIT
	mkdir -p "$bin"
	cd "$source"
	from=$("$go" mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
	sed -e 's/^module .*/module apiserver/' -e "s|=> ./staging/src/\(.*\)|=> \1 v0.${version#1.}|" "$from/go.mod" >go.mod
	cat "$from/go.sum" >go.sum
	cat "$from/cmd/kube-apiserver/apiserver.go" >main.go
	"$go" mod edit -require="k8s.io/kubernetes@v$version"
	set -- -mod=mod -trimpath
	"$go" build "$@" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" -o "$bin/new" .
	mv "$bin/new" "$bin/kube-apiserver"
	"$go" build "$@" -ldflags '-s -w' -o "$bin/new" go.etcd.io/etcd/server/v3
	mv "$bin/new" "$bin/etcd"
)

if [ ! -x "$bin/etcd" ] || [ ! -x "$bin/kube-apiserver" ]; then
	echo "building kube-apiserver $version and its etcd into $bin"
	build
fi
[ "${1:-}" != build ] || exit 0
export HOLDFAST_TEST_KUBERNETES_BIN=$bin
"$go" -C drivers/kubernetes test -count=1 -timeout 20m -run 'Cluster$' ${FLAGS:-} .
"$go" -C test/electors test -count=1 -timeout 20m ${FLAGS:-} . -for "${FOR:-60s}"
HOLDFAST_TEST_ETCD=$bin/etcd "$go" test -count=1 -timeout 20m ${FLAGS:-} ./drivers/etcd
