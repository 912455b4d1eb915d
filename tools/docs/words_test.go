package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// maxWords is how much there may be to read. A page that grows beyond it says what another page can do without.
const maxWords = 38800

// ownPages are pages that are not counted with the others, because readers read only those that they use, with how much there may be to
// read: those of locks over several names, and of readers and writers; those of drivers; and the tables with a column or a section for each
// backend, which grow with every store.
var ownPages = map[string]int{"docs/backends.md": 1500, "docs/doctor.md": 2000, "docs/modes.md": 550, "docs/readers.md": 550,
	"docs/redis.md": driverWords, "docs/kubernetes.md": driverWords,
	"docs/mysql.md": driverWords, "docs/etcd.md": driverWords, "docs/s3.md": driverWords, "docs/dynamodb.md": driverWords,
	"docs/nats.md": driverWords,
	"docs/decisions/etcd-without-its-leases.md": 300, "docs/decisions/etcd-over-grpc.md": 300}

// driverWords is how much there may be to read on the page of a driver. Those of the drivers that are older are counted with the others.
const driverWords = 900

// notCounted are pages that nobody reads through: the command's help, which a test writes, and the changelog.
var notCounted = []string{"CHANGELOG.md", "docs/command-reference.md"}

// The pages together are short enough to be read. All Markdown of the repository counts, with the code and the tables in
// it; a word has a letter or a digit, so the bars of a table are none. "go test -v -run
// Words ./tools/docs" prints the words of each.
func TestWords(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a clone: git ls-files: %v", err)
	}
	words, total := map[string]int{}, 0
	for _, page := range strings.Fields(string(out)) {
		if slices.Contains(notCounted, page) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			continue // removed, and not committed yet
		}
		for word := range strings.FieldsSeq(string(content)) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				words[page]++
			}
		}
		if most, own := ownPages[page]; !own {
			total += words[page]
		} else if words[page] > most {
			t.Errorf("%s has %d words; at most %d are allowed on this page", page, words[page], most)
		}
	}
	for _, page := range slices.SortedFunc(maps.Keys(words), func(a, b string) int { return words[b] - words[a] }) {
		t.Logf("%6d %s", words[page], page)
	}
	t.Logf("%6d in all, without %v", total, slices.Sorted(maps.Keys(ownPages)))
	if len(words) < 30 || total > maxWords {
		t.Errorf("%d pages have %d words; at most %d words are allowed", len(words), total, maxWords)
	}
}
