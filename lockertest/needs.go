package lockertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// need is what a clause cannot do without. A clause may have several.
type need uint

const (
	canWatch need = 1 << iota
	canQueue
	canBeWoken
	canRenewBatch
	canReleaseBatch
	canInspectBatch
	canList
	canBreak
	canStore
	canCheck
	canShare
	limitsData
	lengthens // a renewal with a longer TTL
	judgedByServer
	survivesFailover
	keepsToken
	keepsData
	keepsHistory
	keepsFreeHistory
	canAdvance
	canForget
	canStall
	canFailOver
	canDeny
	canDamage
)

// lack is a need that is not met.
type lack struct {
	need need
	why  string
}

// findLacks says what the driver and the Config lack, by what they declare.
func (s *suite) findLacks() (all []lack) {
	without := func(n need, lacks bool, why string) {
		if lacks {
			all = append(all, lack{n, why})
		}
	}
	has, info, cfg := s.capabilities, s.info, s.cfg
	without(canWatch, info.WakesOnlyQueue, "Info.WakesOnlyQueue declares that nobody without a position is woken")
	without(canQueue, has.Queue == nil, "the driver has no Queue")
	without(canWatch|canBeWoken|canQueue, has.Waker == nil, "the driver has no Waker")
	without(canRenewBatch, has.BatchRenewer == nil, "the driver has no BatchRenewer")
	without(canReleaseBatch, has.BatchReleaser == nil, "the driver has no BatchReleaser")
	without(canInspectBatch, has.BatchInspector == nil, "the driver has no BatchInspector")
	without(canList, has.Lister == nil, "the driver has no Lister")
	without(canBreak, has.Breaker == nil, "the driver has no Breaker")
	without(canStore, has.DataStore == nil, "the driver has no DataStore")
	without(canCheck, has.Checker == nil, "the driver has no Checker")
	without(canShare, !info.Modes.Has(driver.Shared), "Info.Modes declares that the lock is held by one alone")
	without(limitsData, info.Limits.MaxData == 0, "Info.Limits.MaxData declares no limit")
	without(lengthens, info.FixedTTL, "Info.FixedTTL declares that a renewal does not lengthen a lease")
	without(lengthens, s.twice() <= s.cfg.TTL, "Info.Limits.MaxTTL allows no longer TTL than that of the tests")
	without(judgedByServer, info.Expiry != driver.ByServer, "Info.Expiry declares that leases are judged by observation")
	without(survivesFailover, info.Failover != driver.GrantsSurvive, "Info.Failover declares that grants may be forgotten")
	without(keepsToken, !info.Free.Token, "Info.Free.Token declares that a free record does not show the token")
	without(keepsData, !info.Free.Data, "Info.Free.Data declares that a free record does not keep the data")
	without(keepsHistory, info.History == 0, "Info.History declares that no past holders are kept")
	without(keepsFreeHistory, !info.Free.History, "Info.Free.History declares that a free record does not keep the past holders")
	without(canAdvance, cfg.Advance == nil, "Config.Advance is not set")
	without(canForget, cfg.Forget == nil, "Config.Forget is not set")
	without(canStall, cfg.Stall == nil, "Config.Stall is not set")
	without(canFailOver, cfg.FailOver == nil, "Config.FailOver is not set")
	without(canDeny, cfg.Deny == nil, "Config.Deny is not set")
	without(canDamage, cfg.Damage == nil, "Config.Damage is not set")
	return all
}

// can reports whether all of the needs are met.
func (s *suite) can(needs need) bool { return len(s.lacking(needs)) == 0 }

// lacking says which of the needs are not met.
func (s *suite) lacking(needs need) (why []string) {
	for _, l := range s.lacks {
		if l.need&needs != 0 {
			why = append(why, l.why)
		}
	}
	return why
}

// notChecked has the clauses that were left out, or were checked in part only, by the reason.
type notChecked struct {
	reasons []string // in the order in which they came up
	clauses map[string][]string
}

// add notes a clause, for each of the reasons.
func (n *notChecked) add(clause string, reasons ...string) {
	if n.clauses == nil {
		n.clauses = map[string][]string{}
	}
	for _, why := range reasons {
		if n.clauses[why] == nil {
			n.reasons = append(n.reasons, why)
		}
		if !slices.Contains(n.clauses[why], clause) {
			n.clauses[why] = append(n.clauses[why], clause)
		}
	}
}

// write lists the reasons under a heading, each with its clauses.
func (n *notChecked) write(b *strings.Builder, heading string) {
	if len(n.reasons) > 0 {
		fmt.Fprintf(b, "\n\t%s:", heading)
	}
	for _, why := range n.reasons {
		fmt.Fprintf(b, "\n\t\t%s: %s", why, strings.Join(n.clauses[why], ", "))
	}
}

// summary says how many clauses were checked, and which were not, and why.
func (s *suite) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, out := len(clauses()), map[string]bool{}
	for _, of := range s.leftOut.clauses {
		for _, clause := range of {
			out[clause] = true
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "lockertest: %d of the %d clauses were checked on %q", all-len(out), all, s.info.Backend)
	s.leftOut.write(&b, "NOT CHECKED")
	s.inPart.write(&b, "checked in part")
	return b.String()
}
