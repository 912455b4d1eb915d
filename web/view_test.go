package web

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/lockview"
)

// An instance that has partitions of many groups costs about as much as many instances with one each.
func TestInstanceWithManyGroups(t *testing.T) {
	const groups = 40_000
	// The best of three runs, because others use the machine.
	measure := func(owner func(i int) string, instances int) (best time.Duration) {
		s := &lockview.Snapshot{}
		for i := range groups {
			s.Records = append(s.Records, driver.Record{Name: fmt.Sprintf("group-%05d/partition-0000", i), State: driver.StateHeld, Owner: owner(i)})
		}
		best = time.Hour
		for range 3 {
			began := time.Now()
			v := instancesOf(s, query{page: 1, size: 1})
			best = min(best, time.Since(began))
			if v.Total != instances || len(v.Instances[0].Partitions) != groups/instances {
				t.Fatalf("%d instances, the first with %d groups", v.Total, len(v.Instances[0].Partitions))
			}
		}
		return best
	}
	many := measure(func(i int) string { return fmt.Sprintf("web-%d", i) }, groups)
	one := measure(func(int) string { return "web" }, 1)
	if one > 10*many {
		t.Errorf("%d groups of one instance took %s, of as many instances %s", groups, one, many)
	}
}

// The page is sent a lock again whenever it would show a difference, but for the time left.
func TestEveryChangeIsMarked(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	shown := func(r driver.Record) string {
		out := detailOf(&r, at)
		out.RemainingMs, out.History = nil, nil // the page counts the time, and reads the past holders by itself
		text, _ := json.Marshal(out)            // strings and numbers
		return string(text)
	}
	before := driver.Record{State: driver.StateHeld, Owner: "web-1", Token: 7, TTL: time.Minute, AcquiredAt: at, RenewedAt: at}
	for i := 1; i < reflect.TypeOf(before).NumField(); i++ { // the first is the name
		after := before
		switch f := reflect.ValueOf(&after).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Struct: // times
			f.SetZero()
		default:
			f.Set(reflect.ValueOf(map[bool]any{true: "web-2", false: 1}[f.Kind() == reflect.String]).Convert(f.Type()))
		}
		if shown(after) != shown(before) && mark(&after) == mark(&before) {
			t.Errorf("a change of %s is shown, and not marked", reflect.TypeOf(before).Field(i).Name)
		}
	}
}

// The head of the page's table has the columns of its rows, and both sort in orders that exist.
func TestColumnsOfThePage(t *testing.T) {
	page, err1 := assets.ReadFile("assets/index.html")
	script, err2 := assets.ReadFile("assets/view.js")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	_, orders, _ := strings.Cut(string(page), `<select id="sort">`)
	orders, _, _ = strings.Cut(orders, "</select>")
	var head []string
	for _, m := range regexp.MustCompile(`<th [^>]*>(?:<button[^>]*>)?([^<]+)`).FindAllStringSubmatch(string(page), -1) {
		head, orders = append(head, `"`+m[1]+`"`), orders+m[0]
	}
	if want := "const labels = [" + strings.Join(head, ", ") + "];"; len(head) < 2 || !strings.Contains(string(script), want) {
		t.Errorf("view.js does not have %s", want)
	}
	for _, m := range regexp.MustCompile(`(?:data-sort|value)="(\w+)"`).FindAllStringSubmatch(orders, -1) {
		if !slices.Contains(lockview.Orders, m[1]) {
			t.Errorf("the page sorts by %s, which is no order", m[1])
		}
	}
}
