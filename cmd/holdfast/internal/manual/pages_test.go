package manual

import (
	"bytes"
	"testing"
)

func TestManText(t *testing.T) {
	var b bytes.Buffer
	roffText(&b, "One\ntwo -x.\n\n.Three \\ four\n\n    indented\n\n    more\nplain")
	const want = "One\ntwo \\-x.\n.PP\n\\&.Three \\e four\n.PP\n.nf\n    indented\n\\&\n    more\n.fi\n.PP\nplain\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
