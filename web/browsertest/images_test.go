package browsertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

var images = flag.String("images", "", "write the images of docs/page.md into this folder")

// sampleData serves a backend with locks in every state, and with waiters.
func sampleData(t *testing.T) string {
	t.Helper()
	u := backends()["mongodb"](t)
	long := holdfast.WithTTL(time.Hour) // not renewed during the test
	pods := make([]*holdfast.Client, 3)
	for i, name := range []string{"billing-7c9f/1", "billing-b41d/1", "reports-5d2a/1"} {
		pods[i] = open(t, u, holdfast.WithOwner(name))
	}
	for i := range 3 { // earlier holders
		h := lock(t, pods[(i+1)%2], "billing/leader")
		if i == 1 {
			if err := pods[2].BreakNow(t.Context(), "billing/leader", holdfast.BreakToken(h.Token())); err != nil {
				t.Fatal(err)
			}
		}
		_ = h.Release(t.Context()) // a broken one is lost
	}
	for i, name := range []string{"billing/leader", "billing/invoices/2026-11", "import/customers", "search/reindex", "reports/nightly",
		"reports/weekly", "cache/warm-up"} {
		lock(t, pods[i%len(pods)], name, long)
	}
	for i := range 12 {
		lock(t, pods[i%2], fmt.Sprintf("orders/partition-%04d", i), long)
	}
	for _, name := range []string{"migrate/schema", "mail/digest", "housekeeping"} {
		if err := lock(t, pods[2], name).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stuck := lock(t, pods[1], "exports/partner", long)
	if err := pods[0].Break(t.Context(), "exports/partner", holdfast.BreakToken(stuck.Token())); err != nil {
		t.Fatal(err)
	}
	lock(t, pods[2], "thumbnails", long) // its holder seems to be gone: the lease has nearly expired
	locks := mongotest.Connect(t, u).Database(databaseOf(t, u)).Collection(mongo.DefaultCollection)
	for name, minutes := range map[string]int{"thumbnails": 14, "billing/leader": 52, "billing/invoices/2026-11": 41, "import/customers": 47,
		"reports/nightly": 33, "search/reindex": 44, "exports/partner": 21} {
		end := bson.A{bson.M{"$set": bson.M{"expiresAt": bson.M{"$add": bson.A{"$$NOW", minutes * 60_000}}}}}
		if r, err := locks.UpdateByID(t.Context(), name, end); err != nil || r.ModifiedCount != 1 {
			t.Fatal(r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	waiting := open(t, u, holdfast.WithOwner("billing-e0a2/1"))
	go func() {
		defer close(ended)
		if h, err := waiting.Lock(ctx, "billing/leader"); err == nil {
			t.Error("the waiter got the lock")
			_ = h.Release(context.Background())
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		r, err := pods[0].Inspect(t.Context(), "billing/leader")
		if err != nil {
			t.Fatal(err)
		}
		if r.Waiters == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the waiter has no position")
		}
	}
	return serve(t, u, "--allow-break").url
}

// capture returns an image of the window.
func (p *tab) capture() []byte {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, within)
	defer cancel()
	shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
	if err != nil {
		p.t.Fatal(err)
	}
	return shot.Data
}

// The page has no blank and no clipped state: every state is painted in each scheme and size. With
// -images the images are kept.
func TestImages(t *testing.T) {
	base := sampleData(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range sizes {
			p := newTab(t)
			p.resize(size.width, size.height)
			p.scheme(scheme)
			for _, s := range shows {
				s.show(p, base)
				js[any](p, `document.activeElement?.blur()`)
				shot := p.capture()
				decoded, err := png.Decode(bytes.NewReader(shot))
				if err != nil {
					t.Fatal(err)
				}
				small := reduce(decoded)
				if dark := isDark(small); dark != (scheme == "dark") && s.name != "question" {
					t.Errorf("%s in the scheme %s is dark: %v", s.name, scheme, dark)
				}
				if *images != "" && (s.name == "list" || s.name == "detail") && scheme == "light" && size.width == 1440 {
					name := filepath.Join(*images, fmt.Sprintf("page-%s-%s-%d.png", s.name, scheme, size.width))
					var out bytes.Buffer
					if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, out.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				p.do(chromedp.Navigate("about:blank"))
			}
		}
	}
}

// reduce returns an image with few colours, which makes its file small: of similar colours the most
// frequent one.
func reduce(in image.Image) *image.Paletted {
	const most = 256
	counts, bounds := map[color.RGBA]int{}, in.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(in.At(x, y)).(color.RGBA)]++
		}
	}
	best := map[color.RGBA]color.RGBA{}
	for c, n := range counts {
		similar := color.RGBA{c.R >> 5, c.G >> 5, c.B >> 5, 0}
		if b, ok := best[similar]; !ok || n > counts[b] {
			best[similar] = c
		}
	}
	all := slices.SortedFunc(maps.Values(best), func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range all[:min(most, len(all))] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(bounds, palette)
	draw.Draw(out, bounds, in, bounds.Min, draw.Src)
	return out
}

// isDark reports whether the colour of most of an image is dark.
func isDark(in *image.Paletted) bool {
	r, g, b, _ := in.Palette[0].RGBA()
	return r+g+b < 3*0x8000
}
