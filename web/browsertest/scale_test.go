package browsertest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/holdfast-go/holdfast"
)

// With ten thousand locks the page appears, searches and updates quickly. The limits are those of
// a busy machine; the log has the times.
func TestTenThousandLocks(t *testing.T) {
	const locks, paintLimit, searchLimit, updateLimit = 10_000, 5 * time.Second, 5 * time.Second, 5 * time.Second
	for _, name := range []string{"file", "mongodb"} {
		t.Run(name, func(t *testing.T) {
			u := backends()[name](t)
			client := open(t, u, holdfast.WithOwner("worker-7"), holdfast.WithTTL(time.Hour))
			fill(t, client, locks)
			s := serve(t, u)
			p := newTab(t)
			began := time.Now()
			p.do(chromedp.Navigate(s.url))
			p.until(`rows.children.length === 50`)
			rows := time.Since(began)
			p.until(`document.getElementById("counts").textContent.startsWith("` + strconv.Itoa(locks) + ` locks")`)
			paint := time.Duration(js[float64](p, `performance.getEntriesByName("first-contentful-paint")[0].startTime`) * float64(time.Millisecond))
			began = time.Now()
			p.do(chromedp.SendKeys(chromedp.CSS("#text"), "job-07777"))
			p.until(`rows.children.length === 1 && ` + rowHas("job-07777", "held"))
			search := time.Since(began)
			var updates []time.Duration
			for i := range 7 {
				h := lock(t, client, "job-07777-"+strconv.Itoa(i))
				began = time.Now()
				p.until(rowHas("job-07777-"+strconv.Itoa(i), strconv.FormatUint(h.Token(), 10)))
				updates = append(updates, time.Since(began))
			}
			slices.Sort(updates)
			// The work of the page for one update: the script's share, without the wait for the listing.
			work := js[float64](p, `new Promise(done => {
				const observer = new PerformanceObserver(() => {});
				observer.observe({entryTypes: ["longtask"]});
				setTimeout(() => done(observer.takeRecords().reduce((sum, e) => sum + e.duration, 0)), 3000);
			})`)
			t.Logf("%s, %d locks: first paint after %v, rows after %v, a search takes %v, a change is shown after %v (median; %v to %v), tasks "+
				"above 50 ms in 3 s: %v ms",
				name, locks, paint.Round(time.Millisecond), rows.Round(time.Millisecond), search.Round(time.Millisecond),
				updates[len(updates)/2].Round(time.Millisecond), updates[0].Round(time.Millisecond), updates[len(updates)-1].Round(time.Millisecond),
				work)
			if paint > paintLimit || rows > paintLimit || search > searchLimit || updates[len(updates)/2] > updateLimit || work > 1000 {
				t.Error("the page is slow")
			}
		})
	}
}

// fill holds that many locks.
func fill(t *testing.T, client *holdfast.Client, locks int) {
	t.Helper()
	names := make(chan string)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for name := range names {
				if _, err := client.Lock(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range locks {
		names <- fmt.Sprintf("job-%05d", i)
	}
	close(names)
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
