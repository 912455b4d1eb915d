package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
)

// maxDisagreement is how far the clocks of two hosts may differ before it is reported.
const maxDisagreement = time.Second

// hosts examines each host of a URL with several. A program uses the first that takes writes.
func (e *examination) hosts(ctx context.Context) bool {
	own := e.l.store.own
	if own == nil || len(own.hosts) < 2 {
		return true
	}
	answers := make([]hostAnswer, len(own.hosts))
	limited, cancel := context.WithTimeout(ctx, e.l.store.config.timeout)
	defer cancel()
	var asked sync.WaitGroup
	for i, host := range own.hosts {
		asked.Go(func() { answers[i] = askHost(limited, host) })
	}
	asked.Wait()
	var all, primaries []string
	least, most := time.Duration(0), time.Duration(0)
	for i, a := range answers {
		name := own.hosts[i].Addr
		if a.err != nil {
			e.Doubtful(subjectHosts, "Start the server, or take the host out of the URL.", "%s does not answer: %s", name, driver.ErrorText(a.err))
			continue
		}
		kind := "read-only"
		if a.writes {
			kind, primaries = "takes writes", append(primaries, name)
		}
		if len(all) == 0 {
			least, most = a.ahead, a.ahead
		}
		all, least, most = append(all, name+" ("+kind+")"), min(least, a.ahead), max(most, a.ahead)
	}
	text := strings.Join(all, ", ")
	switch {
	case len(primaries) > 1 && !isOn(e.facts["wsrep_on"]):
		e.Wrong(subjectHosts, "Let one of them take writes: SET GLOBAL read_only = ON on all others.", "",
			"several servers take writes, and each grants the same locks: %s", text)
		e.lacks("several servers take writes")
	case most-least > maxDisagreement:
		e.Doubtful(subjectHosts, "Let the machines synchronize their clocks.", "the clocks of the servers differ by %v: after a fail-over "+
			"leases end earlier or later by that", (most - least).Round(time.Millisecond))
	case len(all) > 0:
		e.OK(subjectHosts, "%s", text)
	}
	return true
}

// hostAnswer is what a host says. ahead is how far its clock is ahead of this machine's.
type hostAnswer struct {
	writes bool
	ahead  time.Duration
	err    error
}

func askHost(ctx context.Context, host *gomysql.Config) (a hostAnswer) {
	conn, err := connectTo(ctx, host)
	if err != nil {
		return hostAnswer{err: classify(err)}
	}
	defer func() { _ = conn.Close() }()
	var answer string
	began := time.Now()
	if err := askOne(ctx, conn, "SELECT CONCAT("+takesWrites+", ' ', "+clock+")", &answer); err != nil {
		return hostAnswer{err: classify(err)}
	}
	if err := takesPart(ctx, conn); err != nil {
		return hostAnswer{err: classify(readOnly(err))}
	}
	writes, digits, _ := strings.Cut(answer, " ")
	micros, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return hostAnswer{err: fmt.Errorf("%w", errAnswer)}
	}
	return hostAnswer{writes: writes == "1", ahead: time.UnixMicro(micros).Sub(began.Add(time.Since(began) / 2))}
}
