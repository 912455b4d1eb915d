package browsertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// The site of the pages, which "make docs" builds, can be searched when it is read from files, too.
func TestSiteIsSearchedFromFiles(t *testing.T) {
	site, err := filepath.Abs(filepath.Join("..", "..", ".cache", "site"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"index.html", filepath.Join("guides", "worker.html")} {
		if _, err := os.Stat(filepath.Join(site, path)); err != nil {
			t.Fatalf("make docs builds the site: %v", err)
		}
		p := newTab(t)
		p.do(chromedp.Navigate("file://" + filepath.Join(site, path)))
		p.resize(1440, 900)
		p.do(chromedp.SendKeys(chromedp.CSS(".md-search__input"), "partitions"))
		p.until(`document.querySelector(".md-search-result__item a")?.innerText.toLowerCase().includes("partition")`)
		p.do(chromedp.Click(chromedp.CSS(".md-search-result__item a")))
		p.until(`location.protocol === "file:" && !location.pathname.endsWith(` + quote(filepath.ToSlash(path)) + `) && ` + bodyHas("partition"))
	}
}
