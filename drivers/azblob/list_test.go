package azblob

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// Lockers with different prefixes do not see each other's locks, nor other blobs in the
// container.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	lockers := []*Locker{store.locker(), store.locker(WithPrefix("a")), store.locker(WithPrefix("a/b")), store.locker(WithPrefix("b"))}
	if _, err := store.client.NewBlockBlobClient("strangers").Upload(bounded(t), requestBody(nil), nil); err != nil {
		t.Fatal(err)
	}
	for i, l := range lockers {
		l.config.pageSize = &[]int32{1}[0]
		for _, name := range []string{"n", "b/n", "z"}[:i%3+1] {
			acquire(t, l, request(name))
		}
	}
	for i, l := range lockers {
		var names []string
		for r, err := range l.List(bounded(t), "") {
			if err != nil || r.State != driver.StateHeld || r.Owner == "" {
				t.Errorf("%+v, %v", r, err)
			}
			names = append(names, r.Name)
		}
		want := []string{"n", "b/n n", "b/n n z", "n"}[i]
		if got := strings.Join(names, " "); got != want {
			t.Errorf("prefix %q: %s, want %s", l.config.prefix, got, want)
		}
	}
}
