package lockertest

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

var nameClauses = []clause{
	{
		name: "name/distinct",
		says: "A name is valid UTF-8 of 1 to Limits.MaxName bytes. Names are compared byte for byte, whatever characters they have.",
		run: func(c *check) {
			names := append(oddNames(), c.longNames()...)
			c.distinct(slices.DeleteFunc(names, func(n string) bool { return c.info.Limits.MaxName > 0 && len(n) > c.info.Limits.MaxName }))
		},
	},
	{
		name: "name/invalid",
		says: "A name is valid UTF-8 of 1 to Limits.MaxName bytes. Any other name is ErrInvalid, which names the field, the value and the rule.",
		run:  invalidNames,
	},
}

// oddNames returns names that look like paths, operators, patterns, escapes or each other.
func oddNames() []string {
	const composed, decomposed = "caf\u00e9", "cafe\u0301"
	names := []string{
		".", "..", "/", "//", `\`, `\\`, " ", "  ", "\t", "\n", "\r\n", "\x00", "\x7f", "%", "%%", "$", "*", "?", "~", "-", "--help", "#", "'",
		`"`, "`", ";", "{}", "null", "0",
		"$$NOW", "$kid", "_id", "{\"$ne\":null}", "%00", "%2F", "%2f", "%252F",
		"con", "CON", "nul", "aux.txt", "com1", "LPT1.x", "$Recycle.Bin", ".lock", ".tmp", ".json", "index.json",
		composed, decomposed, strings.ToUpper(composed), "stra\u00dfe", "strasse", "STRASSE", "\u0130", "i\u0307", "\u212a", "k", "K",
		"\U0001f512", "\U0001f512\ufe0f", "\u202eabc", "\ufeffabc", "abc", "\ufffd", "\u200b", "\u65e5\u672c\u8a9e", "\U0010ffff",
	}
	tag := "lt-" + strings.ToLower(rand.Text()[:8])
	for _, pattern := range []string{
		"%s", "%s.", "%s..", "%s ", " %s", "%s/", "/%s", "./%s", "../%s", "a/../%s", "a/b/%s", "a//b/%s", `a\b\%s`, "%s/.", "%s/..", "$%s", "%s$",
		"%s.lock", "%s.json", "%s.tmp", ".%s", "%s~",
		"%s\x00", "%s\x00a", "%s\n", "%s\x1b[31m", "%s:stream", "C:%s", `C:\%s`, "http://x/%s?a=b#c", "%s?x", "%s#x", "%s%%", "%s%%00", "%s%%2e",
		"%s%%2E", "%s*", "%s[a]", "%s|x", "%s<x>", "%s'", "%s\"",
		"%s_", "%s-", "%s+", "%s=", "%s@", "%s!", "%sa", "%sA", "%s\u00e9", "%se\u0301", "%s\u00c9",
	} {
		names = append(names, fmt.Sprintf(pattern, tag))
	}
	return append(names, strings.ToUpper(tag))
}

// longNames returns names of lengths at which file systems and indexes reach their limits.
func (c *check) longNames() []string {
	longest := c.info.Limits.MaxName
	if longest == 0 || longest > 64<<10 {
		longest = 64 << 10
	}
	tag := c.name()
	var names []string
	for _, n := range []int{63, 64, 127, 128, 199, 200, 250, 254, 255, 256, 257, 511, 512, 1023, 1024, longest - 1, longest} {
		if n > longest || n < len(tag)+2 {
			continue
		}
		stem := tag + strings.Repeat("x", n-len(tag)-1)
		names = append(names, stem+"a", stem+"b", stem+"B", "a"+stem)
	}
	names = append(names, strings.Repeat("\U0001f512", longest/4), strings.Repeat("/", longest), strings.Repeat("%", longest))
	slices.Sort(names)
	return slices.Compact(names)
}

// distinct holds all names at the same time, each for an owner of its own.
func (c *check) distinct(names []string) {
	owner := func(i int) string { return fmt.Sprintf("owner %d", i) }
	holder := map[string]string{}
	for i, name := range names {
		holder[owner(i)] = name
	}
	leases := make([]driver.Lease, len(names))
	c.each(len(names), func(i int) {
		req := c.request(names[i])
		req.Owner, req.Data = owner(i), []byte(owner(i))
		lease, err := c.a.TryAcquire(c.ctx, req)
		if err != nil {
			r, _ := c.b.Inspect(c.ctx, req.Name)
			c.fatalf("TryAcquire of the name %q: %v. Its record has owner %q, who holds %q (nothing else may use the store)", short(req.Name), err,
				r.Owner, short(holder[r.Owner]))
		}
		leases[i] = lease
	})
	c.each(len(names), func(i int) {
		r := c.inspect(c.b, names[i])
		c.checkHeldRecord(r, leases[i])
		if string(r.Data) != owner(i) {
			c.errorf("the data of %q are those of %q", short(names[i]), short(holder[string(r.Data)]))
		}
	})
	c.listsExactly(names)
	for step := range 2 { // release every other name; each release frees only its own name
		c.each(len(names), func(i int) {
			if i%2 == step {
				c.release(c.b, leases[i])
			}
		})
		c.each(len(names), func(i int) {
			want := driver.StateHeld
			if i%2 <= step {
				want = driver.StateFree
			}
			if r := c.inspect(c.a, names[i]); r.State != want {
				c.errorf("after the release of every other name %q is %v, want %v", short(names[i]), r.State, want)
			}
		})
	}
}

// listsExactly expects that a Lister yields each of the names once.
func (c *check) listsExactly(names []string) {
	lister := c.b.Capabilities().Lister
	if lister == nil {
		return
	}
	listed := map[string]int{}
	for r, err := range lister.List(c.ctx, "") {
		if err != nil {
			c.fatalf("List of everything: %v", err)
		}
		listed[r.Name]++
	}
	for _, name := range names {
		if listed[name] != 1 {
			c.errorf("List yields the name %q %d times, want once", short(name), listed[name])
		}
	}
}

func invalidNames(c *check) {
	bad := map[string]string{"the empty name": "", "a name that is no UTF-8": "lt-\xff\xfe", "a name with half a surrogate": "lt-\xed\xa0\x80"}
	if c.info.Limits.MaxName > 0 {
		bad["a name that is too long"] = strings.Repeat("x", c.info.Limits.MaxName+1)
		bad["a name that is too long in bytes, not in letters"] = strings.Repeat("\u00e9", c.info.Limits.MaxName/2+1)
	}
	for what, name := range bad {
		for _, m := range c.methods(c.a, name) {
			c.invalid(m.name+" of "+what, "Name", m.call(c.ctx))
		}
	}
}
