#!/usr/bin/env bash
# wine.sh MODULE PACKAGE… runs tests of the module in a folder as Windows programs under Wine. FLAGS, such as -run=Job, go to
# go test.
#
# Debian's Wine 8 lacks two things that Go needs. The script makes up for both, in .cache/wine:
#   - bcryptprimitives.dll with ProcessPrng, from which Go takes random numbers: a library of one function.
#   - FileDispositionInformationEx, with which Go deletes files. Go has an older way that it takes when the system says "not
#     supported"; Wine says "not implemented". An overlay of one line in Go's own package makes Go take the older way.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=$1
shift
go=${GO:-go} dir=$PWD/.cache/wine compiler=x86_64-w64-mingw32-gcc
export WINEPREFIX=$dir/prefix WINEDEBUG=-all WINEARCH=win64 WINEDLLOVERRIDES='mscoree,mshtml=;bcryptprimitives=n'
unset DISPLAY
wine=$(command -v wine64 || command -v wine || ls /usr/lib/wine/wine64 2>/dev/null || true)
if [ -z "$wine" ] || ! command -v $compiler >/dev/null; then
	echo 'wine.sh: wine or MinGW is missing; on Debian: apt-get install --no-install-recommends wine64 gcc-mingw-w64-x86-64' >&2
	exit 1
fi
server=$(command -v wineserver || ls /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver 2>/dev/null | head -1)

mkdir -p "$dir"
if [ ! -f "$dir/ready" ]; then
	"$wine" wineboot -i >"$dir/boot.log" 2>&1
	"$server" -w
	cat >"$dir/prng.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T n) { return SystemFunction036(data, (ULONG)n); }
C
	$compiler -shared -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" "$dir/prng.c" -ladvapi32
	touch "$dir/ready"
fi

original=$("$go" env GOROOT)/src/internal/syscall/windows/at_windows.go
sed 's|^\tcase STATUS_INVALID_INFO_CLASS,|\tcase NTStatus(0xC0000002), STATUS_INVALID_INFO_CLASS,|' "$original" >"$dir/at_windows.go"
if cmp -s "$original" "$dir/at_windows.go"; then
	echo "wine.sh: $original has changed; look at the overlay" >&2
	exit 1
fi
printf '{"Replace": {"%s": "%s"}}\n' "$original" "$dir/at_windows.go" >"$dir/overlay.json"

trap '"$server" -k || true' EXIT
"$server" -p # it stays for all test programs
"$wine" cmd /c exit >/dev/null 2>&1 # starts Wine's services, which would otherwise keep the first test's output open
GOOS=windows GOARCH=amd64 CGO_ENABLED=0 "$go" -C "$module" test -count=1 -vet=off -overlay "$dir/overlay.json" -exec "$wine" \
	-timeout "${TEST_TIMEOUT:-8m}" ${FLAGS:-} "$@"
