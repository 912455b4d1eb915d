package driverutil

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Report is what a [driver.Checker] reports its findings to. The details are formats of package fmt.
type Report func(driver.Finding)

// Of returns a Report whose findings show something of the server ([driver.Finding].Server).
func (r Report) Of(server string) Report {
	return func(f driver.Finding) {
		f.Server = server
		r(f)
	}
}

// OK reports that a subject is as it should be.
func (r Report) OK(subject, format string, args ...any) {
	r(driver.Finding{Subject: subject, Detail: fmt.Sprintf(format, args...)})
}

// Unchecked reports that a subject could not be examined.
func (r Report) Unchecked(subject, remedy, format string, args ...any) {
	r(driver.Finding{Subject: subject, Level: driver.LevelUnchecked, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Doubtful reports that locks work with less safety or speed than they could.
func (r Report) Doubtful(subject, remedy, format string, args ...any) {
	r(driver.Finding{Subject: subject, Level: driver.LevelDoubtful, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Wrong reports that locks do not work, or that a promise may be broken. Command is what mends it, or empty.
func (r Report) Wrong(subject, remedy, command, format string, args ...any) {
	r(driver.Finding{Subject: subject, Level: driver.LevelWrong, Detail: fmt.Sprintf(format, args...), Remedy: remedy, Command: command})
}
