package backends

import (
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// firstScheme is that of the backend which help texts name first. All others follow by themselves.
const firstScheme = "mongodb"

// Drivers returns the descriptions of the drivers whose locks other processes see, in the order of help texts.
func Drivers() []driver.Description {
	all := slices.DeleteFunc(driver.Drivers(), func(d driver.Description) bool { return d.Reach == driver.ReachProcess })
	slices.SortStableFunc(all, func(a, b driver.Description) int {
		switch {
		case a.Reach != b.Reach:
			return int(a.Reach) - int(b.Reach)
		case a.Schemes[0] == firstScheme:
			return -1
		case b.Schemes[0] == firstScheme:
			return 1
		}
		return 0
	})
	return all
}

// Beginnings returns how URLs of a driver begin, such as "azblob://" or "file:", one for each scheme.
func Beginnings(d driver.Description) (all []string) {
	_, rest, _ := strings.Cut(d.Examples[0].URL, ":")
	slashes := ""
	if strings.HasPrefix(rest, "//") {
		slashes = "//"
	}
	for _, scheme := range d.Schemes {
		all = append(all, scheme+":"+slashes)
	}
	return all
}

// Examples explains the form of each backend's URL, as lines of a help text.
func Examples() string {
	const column = 31 // where explanations begin
	var text strings.Builder
	for _, d := range Drivers() {
		for _, e := range d.Examples {
			line := "  " + e.URL
			if len(line)+1 > column {
				text.WriteString(line + "\n")
				line = ""
			}
			text.WriteString(line + strings.Repeat(" ", column-len(line)) + e.Help + "\n")
		}
	}
	return text.String()
}

// sharedExamples names the beginnings of URLs of backends that several machines can share.
func sharedExamples() string {
	var all []string
	for _, d := range Drivers() {
		if d.Reach == driver.ReachMachines {
			all = append(all, Beginnings(d)[0]+"…")
		}
	}
	return join(all, "or")
}

// Counted says what is counted of which backend, such as "commands to MongoDB".
func Counted() string {
	var all []string
	for _, d := range Drivers() {
		if d.Requests != "" {
			all = append(all, d.Requests+" to "+d.Name)
		}
	}
	return join(all, "or")
}

// CredentialVariables lists the environment variables that hold credentials.
func CredentialVariables() string {
	var always, sometimes []string
	for _, d := range driver.Drivers() {
		for _, c := range d.Credentials {
			if c.Reads == nil {
				always = append(always, c.Variables...)
			} else {
				sometimes = append(sometimes, c.When+" "+join(c.Variables, "and"))
			}
		}
	}
	return join(append(append(always, Variable+" if it holds a password"), sometimes...), ", and")
}

// join writes a list such as "a, b and c". A word that begins with a comma makes it "a, b, and c".
func join(all []string, word string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	if !strings.HasPrefix(word, ",") {
		word = " " + word
	}
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + word + " " + all[last]
}
