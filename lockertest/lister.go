package lockertest

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var listerClauses = []clause{
	{
		name: "lister/prefix and order", needs: canList,
		says: "List yields the records whose names begin with prefix, in the byte order of the names.",
		run:  listPrefixes,
	},
	{
		name: "lister/records", needs: canList | keepsToken,
		says: "List yields the records that exist, of held locks and free ones.",
		run: func(c *check) {
			tag := c.name()
			free := c.acquire(c.a, c.request(tag+"-free"))
			c.release(c.a, free)
			held := c.acquire(c.a, c.request(tag+"-held"))
			c.inspect(c.a, tag+"-never")
			records := c.list(tag)
			if len(records) != 2 {
				c.fatalf("List yielded %d records, want 2: one of a held lock and one of a free one", len(records))
			}
			if r := records[0]; r.State != driver.StateFree || r.Token != 0 && r.Token != free.Token {
				c.errorf("the free lock is listed as %v with token %d, want free with token %d", r.State, r.Token, free.Token)
			}
			if r := records[1]; r.State == driver.StateFree {
				c.errorf("the held lock is listed as free")
			}
			c.checkHeldRecord(records[1], held)
		},
	},
	{
		name: "lister/early end", needs: canList,
		says: "The caller may stop before the end of the sequence.",
		run: func(c *check) {
			tag := c.name()
			for _, tail := range []string{"1", "2", "3"} {
				c.acquire(c.a, c.request(tag+tail))
			}
			n := 0
			for r, err := range c.b.Capabilities().Lister.List(c.ctx, tag) {
				if n++; err != nil || r.Name != tag+"1" {
					c.errorf("the first record is %q, error %v, want %q", r.Name, err, tag+"1")
				}
				break
			}
			if n != 1 {
				c.errorf("List yielded nothing of three records")
			}
			if got := len(c.list(tag)); got != 3 {
				c.errorf("List yields %d records after another List was ended early, want 3", got)
			}
		},
	},
}

func listPrefixes(c *check) {
	tag := c.name()
	var names []string
	for _, tail := range []string{
		"", "a", "aa", "ab", "B", "b", "a.b", "axb", "a*", "a%", "a_b", "a[b]", "(", "\\", "$", "^a", "a/b", "a/c", "a//", " ", "\x00",
		"\u00e9", "e\u0301", "\u65e5\u672c", "\u65e5\u8a9e", "\U0001f512", "\uffee", "~", "%2F", "Z", c.filler("long", len(tag)),
	} {
		names = append(names, tag+tail)
		c.acquire(c.a, c.request(tag+tail))
	}
	prefixes := []string{tag[:len(tag)-1]}
	for _, tail := range []string{"", "a", "B", "a.", "a.*", "a*", "a%", "a_b", "a[b]", "(", "\\", "$", "^a", "a/", "\x00", "e", "e\u0301",
		"\u65e5", "\U0001f512", "%2F", "zzz", "lon", "longxx"} {
		prefixes = append(prefixes, tag+tail)
	}
	slices.Sort(names)
	for _, prefix := range prefixes {
		var want, got []string
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for _, r := range c.list(prefix) {
			if strings.HasPrefix(r.Name, tag) { // not another clause's
				got = append(got, r.Name)
			}
			if !strings.HasPrefix(r.Name, prefix) {
				c.errorf("List of prefix %q yields %q", prefix, r.Name)
			}
		}
		if !slices.Equal(got, want) {
			c.errorf("List of prefix %q yields %q, want %q", prefix, got, want)
		}
	}
}

// filler returns the longest possible rest of a name that begins with head, up to 1024 bytes for
// the whole name. used is the length of the name before the rest.
func (c *check) filler(head string, used int) string {
	longest := c.info.Limits.MaxName
	if longest == 0 || longest > 1024 {
		longest = 1024
	}
	return head + strings.Repeat("x", longest-used-len(head))
}

// list collects the records of a prefix and checks their order.
func (c *check) list(prefix string) []driver.Record {
	var all []driver.Record
	for r, err := range c.b.Capabilities().Lister.List(c.ctx, prefix) {
		if err != nil {
			c.fatalf("List of prefix %q: %v", prefix, err)
		}
		if n := len(all); n > 0 && all[n-1].Name >= r.Name {
			c.errorf("List yields %q after %q", r.Name, all[n-1].Name)
		}
		all = append(all, r)
	}
	return all
}
